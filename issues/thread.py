"""One timeline of an issue: what people and agents said, asked, ran and changed. Reads only."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import CharField, F, Value
from django.db.models.functions import Cast

from agents import outcomes
from agents.models import Agent, HeartbeatRun
from companies.errors import NotFound
from companies.models import Activity
from issues.document_models import IssueLabel
from issues.models import Blocker, Comment, Interaction, Issue
from issues.questions import options, question

RUNS = 60
COMMENTS = 400
CHANGES = 300
# Told by the thing itself (a comment, a question, a run), so not a second time as a change.
TOLD = frozenset({"issue.commented", "interaction.asked"})
FAILED = frozenset({"failed", "timed_out", "lost", "unknown"})
# What the timeline shows of a run; its session, result and summary may be long.
_RUN = (
    *("agent__name", "agent__slug", "agent__connection_id", "retry_of_id", "status", "code"),
    *("message", "attempt", "adapter_type", "not_before"),
    *("created_at", "started_at", "finished_at", "input_tokens", "output_tokens"),
    *("cost_micros", "unpriced_calls"),
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One item of the timeline; `kind` is comment, question, run or change."""

    kind: str
    at: datetime
    item: Any


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the last run did not succeed, for the failure box."""

    code: str
    title: str
    meaning: str
    action: str
    message: str
    run_id: uuid.UUID
    agent: Agent
    next_at: datetime | None = None


@dataclass(slots=True)
class Thread:
    entries: list[Entry] = field(default_factory=list)
    live: HeartbeatRun | None = None
    queued: HeartbeatRun | None = None
    pending: list[Interaction] = field(default_factory=list)
    failure: Failure | None = None
    runs: int = 0
    cost_micros: int = 0
    tokens: int = 0
    unpriced: int = 0

    @property
    def shown_runs(self) -> list[HeartbeatRun]:
        """Those of the timeline that have begun."""
        return [entry.item for entry in self.entries if entry.kind == "run"]


@dataclass(slots=True)
class Related:
    """Issues around this one, as (identifier, title, status), and its labels, as (id, name,
    colour)."""

    children: list[tuple[str, str, str]] = field(default_factory=list)
    blocked_by: list[tuple[str, str, str]] = field(default_factory=list)
    blocks: list[tuple[str, str, str]] = field(default_factory=list)
    labels: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def done(self) -> int:
        return sum(status in Issue.CLOSED for _, _, status in self.children)


def find(*, company_id: uuid.UUID, identifier: str) -> Issue:
    """The company's issue, with the names around it. Raises NotFound."""
    found = (
        Issue.objects.for_company(company_id)
        .filter(identifier=identifier.upper()[:24])
        .select_related(
            "company",
            "assignee_agent",
            "assignee_user",
            "project",
            "goal",
            "parent",
            "created_by_user",
            "created_by_agent",
        )
        .first()
    )
    if found is None:
        raise NotFound("There is no such issue.")
    return found


def load(issue: Issue) -> Thread:
    """The timeline, oldest first, with the sums of all its runs."""
    thread = Thread()
    for comment in (
        Comment.objects.for_company(issue.company_id)
        .filter(issue=issue, deleted_at=None)
        .select_related("author_user", "author_agent")
        .order_by("-created_at", "-id")[:COMMENTS]
    ):
        thread.entries.append(Entry("comment", comment.created_at, comment))
    runs = list(
        HeartbeatRun.objects.for_company(issue.company_id)
        .filter(issue=issue)
        .select_related("agent")
        .only(*_RUN)
        .order_by("-created_at", "-id")[:RUNS]
    )
    _add_runs(thread, runs)
    for asked in (
        Interaction.objects.for_company(issue.company_id)
        .filter(issue=issue)
        .select_related("asked_by_agent", "answered_by")
        .order_by("-created_at", "-id")[:COMMENTS]
    ):
        asked.question = question(asked)  # type: ignore[attr-defined]
        asked.options = options(asked)  # type: ignore[attr-defined]
        if asked.status == Interaction.Status.PENDING:
            thread.pending.append(asked)
        else:
            thread.entries.append(Entry("question", asked.created_at, asked))
    for change in (
        Activity.objects.for_company(issue.company_id)
        .filter(entity_id=issue.id)
        .order_by("-occurred_at", "-id")[:CHANGES]
    ):
        words = sentence(change)
        if words:
            change.words = words  # type: ignore[attr-defined]
            thread.entries.append(Entry("change", change.occurred_at, change))
    thread.entries.sort(key=lambda entry: entry.at)
    if issue.status not in Issue.CLOSED:
        thread.failure = _failure(runs)
    return thread


def related(issue: Issue) -> Related:
    """Sub-issues, what blocks it and what it blocks, its labels; one query."""

    def part(kind: str, found: Any, prefix: str) -> Any:
        return (
            found.order_by()
            .annotate(
                kind=Value(kind, output_field=CharField()),
                number=F(f"{prefix}number"),
                ref=F(f"{prefix}identifier"),
                name=F(f"{prefix}title"),
                state=F(f"{prefix}status"),
            )
            .values_list("kind", "number", "ref", "name", "state")
        )

    # Names of annotations must not be names of the model's own fields.
    children = Issue.objects.for_company(issue.company_id).filter(parent=issue)
    rows = (
        children.order_by()
        .annotate(
            kind=Value("children", output_field=CharField()),
            n=F("number"),
            ref=F("identifier"),
            name=F("title"),
            state=F("status"),
        )
        .values_list("kind", "n", "ref", "name", "state")
        .union(
            part("blocked_by", Blocker.objects.filter(issue=issue), "blocking__"),
            part("blocks", Blocker.objects.filter(blocking=issue), "issue__"),
            _labels(issue),
            all=True,
        )
    )
    around = Related()
    for kind, _, ref, name, state in sorted(rows, key=lambda row: (row[0], row[1], row[3].lower())):
        getattr(around, kind).append((ref, name, state))
    return around


def _labels(issue: Issue) -> Any:
    return (
        IssueLabel.objects.filter(issue=issue)
        .order_by()
        .annotate(
            kind=Value("labels", output_field=CharField()),
            n=Value(0),
            ref=Cast("label_id", CharField()),
            name=F("label__name"),
            state=F("label__color"),
        )
        .values_list("kind", "n", "ref", "name", "state")
    )


DOCUMENTS = {
    "issue.document_created": "wrote the document",
    "issue.document_updated": "rewrote the document",
    "issue.document_deleted": "deleted the document",
    "issue.document_locked": "locked the document",
    "issue.document_unlocked": "unlocked the document",
}

PRODUCTS = {
    "issue.work_product_created": "handed in",
    "issue.work_product_updated": "changed what was handed in:",
    "issue.work_product_deleted": "took back",
}


def sentence(change: Activity) -> list[tuple[str, str, str]]:
    """What changed as (verb, value, status) pieces; empty for what is told elsewhere."""
    if change.action in TOLD or _is_of_work_tree(change):
        return []
    if change.action == "issue.worktree_removed":
        return [("removed the work tree", str(change.details.get("branch", "")), "")]
    if change.action == "issue.created":
        return [("created this issue", "", "todo")]
    if change.action in PRODUCTS:
        return [(PRODUCTS[change.action], str(change.details.get("title", "")), "")]
    if change.action in DOCUMENTS:
        return [(DOCUMENTS[change.action], str(change.details.get("key", "")), "")]
    before = change.details.get("before") or {}
    after = change.details.get("after") or {}
    pieces = []
    for name, value in after.items():
        if name == "status":
            pieces.append(("moved this to", str(value), str(value)))
        elif name == "assignee":
            pieces.append(
                ("assigned this to", str(value), "") if value else ("unassigned this", "", "")
            )
        elif name in ("title", "priority", "project", "goal", "parent"):
            text = str(value) if value else "none"
            pieces.append((f"set the {name} to", text, ""))
        elif name == "description":
            pieces.append(("edited the description", "", ""))
        elif name == "blocked_by":
            text = ", ".join(map(str, value)) if value else "nothing"
            pieces.append(("made this blocked by", text, ""))
        elif name == "labels":
            text = ", ".join(map(str, value)) if value else "none"
            pieces.append(("set the labels to", text, ""))
        elif name == "blocked_reason" and value:
            pieces.append(("said why it is blocked:", str(value), ""))
    if change.details.get("stopped"):
        pieces.append(("because the run was ended:", str(change.details["stopped"]), ""))
    if not pieces and not before:
        noun, _, verb = change.action.partition(".")
        words = verb.replace("_", " ")
        pieces.append((words if noun == "issue" else f"{noun.replace('_', ' ')} {words}", "", ""))
    return pieces


def _is_of_work_tree(change: Activity) -> bool:
    """What a run handed in with Git is shown as a whole, above the thread."""
    noun, _, verb = change.action.partition(".")
    handed_in = noun == "issue" and verb.startswith("work_product_")
    return handed_in and change.details.get("provider") == "git"


def _add_runs(thread: Thread, runs: list[HeartbeatRun]) -> None:
    for run in runs:
        thread.runs += 1
        thread.cost_micros += run.cost_micros
        thread.tokens += run.input_tokens + run.output_tokens
        thread.unpriced += run.unpriced_calls
        if run.status == HeartbeatRun.Status.QUEUED:
            thread.queued = run
            continue
        if run.status == HeartbeatRun.Status.RUNNING:
            thread.live = run
        thread.entries.append(Entry("run", run.started_at or run.created_at, run))


def _failure(runs: list[HeartbeatRun]) -> Failure | None:
    """The failure box: the newest run that ended, when it ended badly and nothing runs now."""
    ended = next((run for run in runs if run.status not in HeartbeatRun.LIVE), None)
    running = any(run.status == HeartbeatRun.Status.RUNNING for run in runs)
    if ended is None or running or ended.status not in FAILED:
        return None
    waiting = next(
        (
            run
            for run in runs
            if run.status == HeartbeatRun.Status.QUEUED and run.agent_id == ended.agent_id
        ),
        None,
    )
    return failure_of(ended, waiting)


def failure_of(run: HeartbeatRun, waiting: HeartbeatRun | None = None) -> Failure:
    """What the table of outcomes says about a run that failed; `waiting` is what its agent has
    queued about the same issue."""
    row = outcomes.of(run.code)
    return Failure(
        code=run.code,
        title=row.title,
        meaning=row.meaning,
        action=outcomes.advice(run.code, repeats=bool(waiting and waiting.retry_of_id)),
        message=run.message,
        run_id=run.id,
        agent=run.agent,
        next_at=waiting.not_before if waiting else None,
    )
