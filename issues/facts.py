"""What lies around the issues of a list and decides whether anybody works on them. Reads only.

Four statements however many issues there are, written by hand: they are on every list, board and
home, and building them anew from querysets costs several times what they take.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from django.db import connection


class Waiting(Protocol):
    """What is asked of an issue: the model has it, and so has a row of a list."""

    @property
    def id(self) -> uuid.UUID: ...
    @property
    def status(self) -> str: ...
    @property
    def blocked_reason(self) -> str: ...
    @property
    def updated_at(self) -> datetime: ...
    @property
    def assignee_agent_id(self) -> uuid.UUID | None: ...
    @property
    def assignee_user_id(self) -> uuid.UUID | None: ...


@dataclass(frozen=True, slots=True)
class Provider:
    """The connection that an agent's runs go over."""

    id: uuid.UUID
    name: str
    disabled_at: datetime | None
    breaker: str
    open_code: str
    open_until: datetime | None


@dataclass(frozen=True, slots=True)
class Assignee:
    """An agent with its holds, as (reason, since)."""

    id: uuid.UUID
    name: str
    status: str
    error_code: str
    max_concurrent_runs: int
    holds: list[tuple[str, datetime]]
    provider: Provider | None


@dataclass(frozen=True, slots=True)
class Live:
    """A queued or running run; `identifier` is its issue's, empty without one."""

    id: uuid.UUID
    agent_id: uuid.UUID
    issue_id: uuid.UUID | None
    identifier: str
    status: str
    not_before: datetime
    attempt: int
    created_at: datetime
    refused: str  # the code of the run before it, which could not start; else empty


_AGENTS = """
SELECT a.id, a.name, a.status, a.error_code, a.max_concurrent_runs, held.reasons, held.since,
       c.id, c.name, c.disabled_at, c.breaker, c.open_code, c.open_until
FROM agents_agent a
LEFT JOIN agents_providerconnection c ON c.id = a.connection_id
LEFT JOIN LATERAL (
    SELECT array_agg(reason ORDER BY created_at, id) AS reasons,
           array_agg(created_at ORDER BY created_at, id) AS since
    FROM agents_hold WHERE agent_id = a.id
) AS held ON true
WHERE a.id = ANY(%s)
"""
_BLOCKERS = """
SELECT b.issue_id, i.id, i.identifier
FROM issues_blocker b JOIN issues_issue i ON i.id = b.blocking_id
WHERE b.issue_id = ANY(%s) AND i.status NOT IN ('done', 'cancelled') ORDER BY i.number, b.id
"""
_QUESTIONS = """
SELECT issue_id, id, created_at FROM issues_interaction
WHERE issue_id = ANY(%s) AND status = 'pending' ORDER BY created_at, id
"""
# Each arm names one status: so each finds its own small index.
_LIVE = """
SELECT r.id, r.agent_id, r.issue_id, coalesce(i.identifier, ''), r.status, r.not_before, r.attempt,
       r.created_at, coalesce(refused.code, '')
FROM agents_heartbeatrun r LEFT JOIN issues_issue i ON i.id = r.issue_id
LEFT JOIN agents_heartbeatrun refused ON refused.id = r.retry_of_id AND refused.status = 'cancelled'
WHERE r.company_id = %(company)s AND (
    r.status = 'queued' AND r.issue_id = ANY(%(issues)s)
    OR r.status = 'running' AND (r.issue_id = ANY(%(issues)s) OR r.agent_id = ANY(%(agents)s)))
ORDER BY r.created_at, r.id
"""


class Facts:
    """Everything that the reasons of a list are made of. The issues are of one company."""

    def __init__(self, company_id: uuid.UUID, issues: Sequence[Waiting]) -> None:
        ids = [issue.id for issue in issues]
        agent_ids = list({i.assignee_agent_id for i in issues if i.assignee_agent_id})
        self.agents = {row[0]: _assignee(row) for row in _rows(_AGENTS, [agent_ids])}
        self.blockers: dict[uuid.UUID, list[tuple[uuid.UUID, str]]] = defaultdict(list)
        for issue_id, blocking_id, identifier in _rows(_BLOCKERS, [ids]):
            self.blockers[issue_id].append((blocking_id, identifier))
        self.questions: dict[uuid.UUID, tuple[uuid.UUID, datetime]] = {}
        for issue_id, asked_id, asked_at in _rows(_QUESTIONS, [ids]):
            self.questions.setdefault(issue_id, (asked_id, asked_at))
        self.queued: dict[uuid.UUID, Live] = {}
        self.running: set[uuid.UUID] = set()
        self.at_work: dict[uuid.UUID, list[Live]] = defaultdict(list)
        self._runs(company_id, ids, agent_ids)

    def _runs(
        self, company_id: uuid.UUID, ids: list[uuid.UUID], agent_ids: list[uuid.UUID]
    ) -> None:
        """Live runs of these issues, and what their agents are busy with."""
        wanted = set(ids)
        values = {"company": company_id, "issues": ids, "agents": agent_ids}
        for run in (Live(*row) for row in _rows(_LIVE, values)):
            if run.status == "running":
                self.at_work[run.agent_id].append(run)
                if run.issue_id in wanted:
                    self.running.add(run.issue_id)
            elif run.issue_id in wanted:
                self.queued.setdefault(run.issue_id, run)


def _assignee(row: Sequence[Any]) -> Assignee:
    holds = list(zip(row[5] or (), row[6] or (), strict=True))
    key, name, status, code, most = row[:5]
    provider = Provider(*row[7:]) if row[7] else None
    return Assignee(key, name, status, code, most, holds, provider)


def _rows(statement: str, values: Any) -> Iterable[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall()
