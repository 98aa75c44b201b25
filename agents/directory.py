"""Who works here and how it goes: the roster, the org chart, runs of an agent. Reads only."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import PurePath
from typing import Any

from django.db.models import Count, Exists, OuterRef, Q
from django.db.models.fields.json import KeyTextTransform

from agents import adapters, outcomes, roster
from agents.models import Agent, HeartbeatRun, Hold, RunEvent
from agents.transcript import last_step
from companies import format
from companies.errors import NotFound

Run = HeartbeatRun.Status
DAYS = 14
RUNS = 50
BAD = (Run.FAILED, Run.TIMED_OUT, Run.LOST, Run.UNKNOWN)
# The index `run_record` holds these and nothing but what is counted here.
ENDED = (Run.SUCCEEDED, *BAD)
# A run that lost its holder was begun once more: how that one ended is what counts.
FAILED = (Run.FAILED, Run.TIMED_OUT, Run.UNKNOWN)
RECORD = {
    "ok": Count("status", filter=Q(status=Run.SUCCEEDED)),
    "bad": Count("status", filter=Q(status__in=FAILED)),
}


@dataclass(frozen=True, slots=True)
class RunRow:
    """What a run's line shows. `cost_micros` is of the calls with a known price."""

    id: uuid.UUID
    status: str
    agent: str
    reason: str
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    identifier: str = ""
    title: str = ""
    step: str = ""
    code: str = ""
    tokens: int = 0
    cost_micros: int = 0
    unpriced: int = 0
    attempt: int = 1
    simulated: bool = False
    on_fallback: bool = False


@dataclass(slots=True)
class Person:
    """One line of the roster."""

    agent: Agent
    status: str
    holds: list[Hold] = field(default_factory=list)
    running: int = 0
    queued: int = 0
    issue: tuple[str, str] | None = None  # identifier, title of what it works on
    run_id: uuid.UUID | None = None
    succeeded: int = 0
    failed: int = 0
    depth: int = 0
    tool: str = ""  # the model or the program that its adapter is set to
    reports: list[Person] = field(default_factory=list)

    @property
    def rate(self) -> int | None:
        """Share of the runs of 14 days that succeeded, in percent."""
        ended = self.succeeded + self.failed
        return format.share(self.succeeded, ended) if ended else None

    @property
    def simulated(self) -> bool:
        return self.agent.adapter_type == "demo"

    @property
    def adapter(self) -> str:
        return adapter_label(self.agent.adapter_type)

    @property
    def job(self) -> str:
        """Its title, or its role where that says something."""
        role = self.agent.role
        return self.agent.title or ("" if role == "general" else format.label(role))

    @property
    def failure(self) -> str:
        return outcomes.of(self.agent.error_code).title if self.agent.error_code else ""


def people(*, company_id: uuid.UUID, now: datetime) -> list[Person]:
    """Everybody who works here, by name; four queries."""
    agents = list(
        Agent.objects.for_company(company_id)
        .exclude(status=Agent.Status.TERMINATED)
        .defer("instructions", "adapter_config", "capabilities")
        .annotate(
            set_model=KeyTextTransform("model", "adapter_config"),
            set_command=KeyTextTransform("command", "adapter_config"),
        )
        .order_by("name", "id")
    )
    holds: dict[uuid.UUID, list[Hold]] = defaultdict(list)
    for hold in Hold.objects.for_company(company_id).order_by("created_at", "id"):
        holds[hold.agent_id].append(hold)
    live: dict[uuid.UUID, list[HeartbeatRun]] = defaultdict(list)
    for run in (
        HeartbeatRun.objects.for_company(company_id)
        .live()
        .select_related("issue")
        .only("agent_id", "status", "issue__identifier", "issue__title")
        .order_by("created_at", "id")[:1_000]
    ):
        live[run.agent_id].append(run)
    records = {row[0]: row[1:] for row in _records(company_id, now)}
    found = []
    for agent in agents:
        running = [run for run in live[agent.id] if run.status == Run.RUNNING]
        now_on = running[0] if running else None
        ok, bad = records.get(agent.id, (0, 0))
        found.append(
            Person(
                agent=agent,
                status=roster.status_of(agent, len(running), holds[agent.id]),
                holds=holds[agent.id],
                running=len(running),
                queued=len(live[agent.id]) - len(running),
                issue=(now_on.issue.identifier, now_on.issue.title)
                if now_on and now_on.issue
                else None,
                run_id=now_on.id if now_on else None,
                succeeded=ok,
                failed=bad,
                tool=agent.set_model or PurePath(agent.set_command or "").name,
            )
        )
    return found


def _records(company_id: uuid.UUID, now: datetime) -> Any:
    return (
        HeartbeatRun.objects.for_company(company_id)
        .filter(created_at__gte=now - timedelta(days=DAYS), status__in=ENDED)
        .order_by()
        .values_list("agent_id")
        .annotate(**RECORD)
    )


def tree(found: list[Person]) -> list[Person]:
    """The org chart: who reports to nobody (here), each with those below."""
    by_id = {person.agent.id: person for person in found}
    tops: list[Person] = []
    for person in found:
        manager = by_id.get(person.agent.reports_to_id) if person.agent.reports_to_id else None
        (manager.reports if manager else tops).append(person)
    return tops


def find(*, company_id: uuid.UUID, slug: str) -> Agent:
    """The company's agent of this short name; `running`: does a run go on? Raises NotFound."""
    running = HeartbeatRun.objects.for_company(company_id).filter(
        agent=OuterRef("id"), status=Run.RUNNING
    )
    found = (
        Agent.objects.for_company(company_id)
        .filter(slug=slug)
        .select_related("company", "reports_to")
        .annotate(running=Exists(running))
        .first()
    )
    if found is None:
        raise NotFound("There is no such agent.")
    return found


def run(*, company_id: uuid.UUID, run_id: uuid.UUID) -> HeartbeatRun:
    """The company's run with its agent and issue. Raises NotFound."""
    found = (
        HeartbeatRun.objects.for_company(company_id)
        .filter(id=run_id)
        .select_related("agent", "issue", "company")
        .first()
    )
    if found is None:
        raise NotFound("There is no such run.")
    return found


def managers(company_id: uuid.UUID, *, without: uuid.UUID | None = None) -> list[tuple[str, str]]:
    """Whom an agent may report to."""
    found = Agent.objects.for_company(company_id).exclude(status=Agent.Status.TERMINATED)
    if without:
        found = found.exclude(id=without)
    return [
        (str(key), name) for key, name in found.order_by("name", "id").values_list("id", "name")
    ]


def run_rows(
    *,
    company_id: uuid.UUID,
    agent_id: uuid.UUID | None = None,
    live: bool = False,
    states: Sequence[str] = (),
    before: uuid.UUID | None = None,
    limit: int = RUNS,
) -> list[RunRow]:
    """Lines of runs, the newest first; the last step of those that are going on. Two queries."""
    found = HeartbeatRun.objects.for_company(company_id)
    if agent_id:
        found = found.filter(agent_id=agent_id)
    if states:
        found = found.filter(status__in=states)
    if live:
        found = found.filter(status=Run.RUNNING)
    if before:
        # Ids are made in the order of time.
        found = found.filter(id__lt=before)
    runs = list(
        found.select_related("agent", "issue")
        .only(
            *("status", "reason", "created_at", "started_at", "finished_at", "code", "attempt"),
            *("input_tokens", "output_tokens", "cost_micros", "unpriced_calls", "adapter_type"),
            *("agent__name", "agent__adapter_type", "issue__identifier", "issue__title"),
            *("on_fallback", "lease_expires_at"),
        )
        .order_by(*(("started_at", "id") if live else ("-id",)))[:limit]
    )
    steps = latest([run for run in runs if run.status == Run.RUNNING])
    return [
        row(run, at_work(run, steps.get(run.id)) if run.status == Run.RUNNING else "")
        for run in runs
    ]


def row(run: HeartbeatRun, step: str = "") -> RunRow:
    """One run as its line shows it."""
    return RunRow(
        id=run.id,
        status=run.status,
        agent=run.agent.name,
        reason=run.reason,
        created_at=run.created_at,
        started_at=run.started_at,
        finished_at=run.finished_at,
        identifier=run.issue.identifier if run.issue else "",
        title=run.issue.title if run.issue else "",
        step=step,
        code=run.code,
        tokens=run.input_tokens + run.output_tokens,
        cost_micros=run.cost_micros,
        unpriced=run.unpriced_calls,
        attempt=run.attempt,
        simulated=run.agent.adapter_type == "demo",
        on_fallback=run.on_fallback,
    )


def at_work(run: HeartbeatRun, event: RunEvent | None) -> str:
    """What a running run is at, in a few words; `event` is its latest telling one."""
    if run.lease_expires_at is not None:
        by = run.lease_expires_at.astimezone(UTC)
        return f"The service has taken the run over; it must report by {by:%H:%M} UTC"
    return last_step(event)


def latest(runs: list[HeartbeatRun]) -> dict[uuid.UUID, RunEvent]:
    """The newest telling event of each run, in one query that reads one row a run."""
    if not runs:
        return {}
    telling = ("text", "stdout", "stderr", "step", "system")
    parts = [
        RunEvent.objects.filter(
            run_id=run.id, run_created_at=run.created_at, kind__in=telling
        ).order_by("-seq")[:1]
        for run in runs[:50]
    ]
    found = parts[0].union(*parts[1:], all=True) if len(parts) > 1 else parts[0]
    return {event.run_id: event for event in found}


def adapter_label(type_: str) -> str:
    """An adapter's name for people, also of one that this version does not know."""
    try:
        return adapters.get(type_).label
    except adapters.UnknownAdapter:
        return type_


def isolation_of(type_: str, config: Mapping[str, Any]) -> str:
    """How an agent's programs are kept apart, for people; "" for a kind that starts none."""
    try:
        known = adapters.get(type_).Config.model_fields
    except adapters.UnknownAdapter:
        return ""
    if "isolation" not in known:
        return ""
    if config.get("isolation", "none") == "none":
        return "None: it may do what Paperclip's user may"
    network = config.get("isolationNetwork", True)
    return f"Bubblewrap, {'with the network' if network else 'without a network'}"
