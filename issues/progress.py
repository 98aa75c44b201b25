"""Do an agent's runs move its issue on? Judged at the end of each run; who goes round in circles is
held, with the evidence, until a person releases it.

Progress is what a run leaves behind: another status, another field, a sub-issue, a question, words
that it has not said before. A person's word about the issue begins the count anew.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from agents import loop_limits, loops
from agents.adapters.base import Code
from agents.loop_limits import Limits
from agents.loops import Finding
from agents.models import HeartbeatRun
from agents.wakes import MANUAL, TIMER
from companies.models import Activity
from issues.models import Comment, Issue

Run = HeartbeatRun.Status

WORDS_REMEMBERED = 50

# Of a run's deeds these say nothing about progress by themselves.
_ROUTINE = frozenset({"issue.checked_out", "issue.released", "issue.commented"})


def judge(
    *,
    run: HeartbeatRun,
    ending: str,
    message: str,
    result: Mapping[str, Any],
    now: datetime,
    made: int | None = None,
) -> Finding | None:
    """Called in the transaction that ends a run, after everything else is written; `run` is as it
    has ended, with its agent and issue, `ending` its code, `made` how many issues its agent has
    made since it began, if the caller knows. Holds the agent when it went round in circles and
    says what was found."""
    limits = loop_limits.of(run.agent)
    if ending == Code.LOOP:
        finding: Finding | None = loops.stopped(message=message, result=result)
    else:
        finding = (
            loops.overspent(run=run)
            or _fan_out(run, limits, now, made)
            or _standing_still(run, limits, now)
        )
    if finding is not None:
        loops.hold(agent=run.agent, run=run, finding=finding, now=now)
    return finding


_MADE = """
SELECT count(*) FROM issues_issue
WHERE company_id = %s AND created_by_agent_id = %s AND created_at BETWEEN %s AND %s
"""


def _fan_out(run: HeartbeatRun, limits: Limits, now: datetime, made: int | None) -> Finding | None:
    """Has the run created all the issues that one may? It would have gone on."""
    if run.started_at is None:
        return None
    count = _made(run, now) if made is None else made
    if count < limits.issues_a_run:
        return None
    theirs = Issue.objects.for_company(run.company_id).filter(
        created_by_agent_id=run.agent_id, created_at__gte=run.started_at
    )
    shown = list(theirs.order_by("-created_at", "-id").values_list("identifier", flat=True)[:10])
    return Finding(
        "fan_out",
        f"One run has created {count} issues, the latest {shown[0]}.",
        {"issues": count, "latest": shown},
    )


def _made(run: HeartbeatRun, now: datetime) -> int:
    with connection.cursor() as cursor:
        cursor.execute(_MADE, [run.company_id, run.agent_id, run.started_at, now])
        return int(cursor.fetchone()[0])


def _standing_still(run: HeartbeatRun, limits: Limits, now: datetime) -> Finding | None:
    issue = run.issue
    if run.status != Run.SUCCEEDED or issue is None or issue.status in Issue.CLOSED:
        return None
    recent = _since_a_person(run, issue, most=max(limits.idle_runs, limits.runs_an_hour) + 1)
    if len(recent) < min(limits.idle_runs, limits.runs_an_hour + 1):
        return None
    deeds = _deeds(recent, issue)
    return _no_progress(recent, issue, deeds, limits) or _too_often(
        run, recent, issue, deeds, limits, now
    )


def _since_a_person(run: HeartbeatRun, issue: Issue, *, most: int) -> list[HeartbeatRun]:
    """The agent's latest successful runs about the issue, newest first, back to a person's word."""
    runs = HeartbeatRun.objects.filter(issue=issue, agent_id=run.agent_id, status=Run.SUCCEEDED)
    asked = (
        Activity.objects.filter(entity_id=issue.pk, actor_type=Activity.ActorType.USER)
        .order_by("-occurred_at", "-id")
        .values_list("occurred_at", flat=True)
        .first()
    )
    if asked is not None:
        runs = runs.filter(created_at__gt=asked)
    found: list[HeartbeatRun] = []
    for one in runs.order_by("-created_at", "-id")[:most]:
        if one.reason == MANUAL or one.source == HeartbeatRun.Source.ON_DEMAND:
            break
        found.append(one)
    return found


def _deeds(runs: Sequence[HeartbeatRun], issue: Issue) -> dict[uuid.UUID, list[Activity]]:
    """What each run did to the issue, in order."""
    deeds: dict[uuid.UUID, list[Activity]] = {run.pk: [] for run in runs}
    rows = Activity.objects.filter(
        entity_id=issue.pk,
        occurred_at__gte=min(run.created_at for run in runs),
        run_id__in=list(deeds),
    )
    for row in rows.order_by("occurred_at", "id"):
        if row.run_id is not None:
            deeds[row.run_id].append(row)
    return deeds


def _no_progress(
    recent: Sequence[HeartbeatRun],
    issue: Issue,
    deeds: Mapping[uuid.UUID, list[Activity]],
    limits: Limits,
) -> Finding | None:
    runs = recent[: limits.idle_runs]
    if len(runs) < limits.idle_runs:
        return None
    if any(_changed_status(deeds[run.pk]) or _did_more(deeds[run.pk]) for run in runs):
        return None
    if _said_something_new(runs, issue) or _made_issues(runs):
        return None
    return Finding(
        "no_progress",
        f"{len(runs)} runs on {issue.identifier} went well and changed nothing.",
        {"issue": issue.identifier, "runs": [str(run.pk) for run in runs]},
    )


def _too_often(
    run: HeartbeatRun,
    recent: Sequence[HeartbeatRun],
    issue: Issue,
    deeds: Mapping[uuid.UUID, list[Activity]],
    limits: Limits,
    now: datetime,
) -> Finding | None:
    """However busy they look: many runs an hour for one reason, and the issue stands where it
    stood."""
    if run.reason == TIMER:
        return None
    since = now - timedelta(hours=1)
    runs = [one for one in recent if one.reason == run.reason and one.created_at > since]
    if len(runs) <= limits.runs_an_hour or any(_changed_status(deeds[one.pk]) for one in runs):
        return None
    return Finding(
        "too_often",
        f"{len(runs)} runs on {issue.identifier} within an hour ({run.reason}), and it is still "
        f"{issue.get_status_display().lower()}.",
        {"issue": issue.identifier, "reason": run.reason, "runs": [str(one.pk) for one in runs]},
    )


def _changed_status(rows: Iterable[Activity]) -> bool:
    """Is the issue's status another one after the run than before it?"""
    steps = [
        (before, after)
        for row in rows
        if (before := _status(row, "before")) and (after := _status(row, "after"))
    ]
    return bool(steps) and steps[0][0] != steps[-1][1]


def _status(row: Activity, when: str) -> str:
    part = row.details.get(when)
    return str(part.get("status") or "") if isinstance(part, dict) else ""


def _did_more(rows: Iterable[Activity]) -> bool:
    """Did the run change something beside the status, or ask something?"""
    for row in rows:
        if row.action in _ROUTINE:
            continue
        after = row.details.get("after")
        if row.action == "issue.updated" and isinstance(after, dict) and set(after) <= {"status"}:
            continue
        return True
    return False


def _said_something_new(runs: Sequence[HeartbeatRun], issue: Issue) -> bool:
    """Does any comment of these runs say what the agent had not said before?"""
    mine = Comment.objects.filter(issue=issue, author_agent_id=runs[0].agent_id)
    said = mine.filter(run_id__in=[run.pk for run in runs]).order_by("created_at", "id")
    first = said.values_list("created_at", flat=True).first()
    if first is None:
        return False
    before = mine.filter(created_at__lt=first).order_by("-created_at", "-id")
    known = {_plain(body) for body in before.values_list("body", flat=True)[:WORDS_REMEMBERED]}
    return any(_plain(body) not in known for body in said.values_list("body", flat=True))


def _plain(body: str) -> str:
    """The words alone: a number or a date that counts up makes no new thought."""
    return re.sub(r"[\W\d_]+", " ", body.lower()).strip()


def _made_issues(runs: Sequence[HeartbeatRun]) -> bool:
    starts = [run.started_at for run in runs if run.started_at is not None]
    return bool(starts) and (
        Issue.objects.for_company(runs[0].company_id)
        .filter(created_by_agent_id=runs[0].agent_id, created_at__gte=min(starts))
        .exists()
    )
