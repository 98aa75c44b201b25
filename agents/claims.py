"""How queued runs start: the one gate that every run passes.

Who may start is decided by PostgreSQL in one short transaction: the rows of the companies and
agents concerned are locked, then, with a fresh look at what runs and what is held, as many runs
are taken as every cap allows. A pause or another claim takes the same locks, so that neither can
slip in between the count and the start. Rows are locked with SKIP LOCKED: no claimer waits for
another instance's. The statements are in `gate.py`. Read next: `runs.py`.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psycopg
from django.db import OperationalError, connection, transaction

from agents import gate
from companies import faultpoints, keys, live

WINDOW = 128  # agents with something queued that one claim looks at
FEWEST_COMPANIES = 4  # of which one claim takes from, at least, where there are as many
SLACK = 64  # runs considered beyond the limit, since some may be stale or about one issue
PATIENCE_SECONDS = 2.0  # for the instance's turn
NOBODY = uuid.UUID(int=0)
NO_LIMITS: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Claimed:
    """A run that now belongs to the claiming worker, as long as its epoch stands; and so is its
    token good. The database keeps only the token's digest."""

    run_id: uuid.UUID
    epoch: int
    company_id: uuid.UUID
    agent_id: uuid.UUID
    issue_id: uuid.UUID | None
    created_at: datetime
    adapter_type: str
    attempt: int
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the next claim goes on looking, so that everybody has a turn."""

    company_id: uuid.UUID = NOBODY
    agent_id: uuid.UUID = NOBODY


START = Place()


class Batch(list[Claimed]):
    """What was claimed. `more`: there is work that another look may get. `place`: for that look."""

    def __init__(self, runs: list[Claimed], *, more: bool, place: Place) -> None:
        super().__init__(runs)
        self.more = more
        self.place = place


def claim(
    *,
    worker_id: uuid.UUID,
    limit: int,
    place: Place = START,
    window: int = WINDOW,
    most_of_kind: Mapping[str, int] = NO_LIMITS,
) -> Batch:
    """Start up to `limit` queued runs for a live, undrained worker.

    Fair between companies (who has the least running is served first), then by priority, then by
    age. Queued runs that have lost their purpose (issue closed, archived, parked or reassigned)
    are cancelled on the way, with that as their code. Caps hold exactly, also against a claim or
    a pause at the same moment. `most_of_kind`: how many runs of an adapter type the worker's
    instance may have going on at once.
    """
    if limit < 1:
        return Batch([], more=False, place=place)
    # Minted before, so that the statement that starts a run writes its digest as well.
    tokens = [keys.mint(keys.RUN) for _ in range(limit)]
    values = {
        "worker_id": worker_id,
        "limit": limit,
        "digests": [minted.digest for minted in tokens],
        "kinds": list(most_of_kind),
        "mosts": list(most_of_kind.values()),
    }
    try:
        with transaction.atomic(), _cursor() as cursor:
            _take_turn(cursor, worker_id)
            found = _look(cursor, values, place, window)
            moved = _take(cursor, values, found) if found.agents else []
            faultpoints.reach("claiming")
            _tell(moved)
    except OperationalError as error:
        if isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
            # Another claimer of this instance is stuck; the database ends it before long.
            return Batch([], more=True, place=place)
        raise
    if found.seen == 0:
        # Behind the last one: the next look begins at the front.
        return Batch([], more=place != START, place=START)
    started = [
        (*about, tokens[place - 1].token)
        for *about, status, _, place in moved
        if status == "running"
    ]
    taken = [Claimed(*one) for one in started]
    onward = found.last if found.seen >= window else START
    unseen = found.seen >= window or place != START
    full = len(taken) >= limit
    deepest = max(Counter(run.agent_id for run in taken).values(), default=0)
    more = not full and (
        unseen or len(taken) < found.candidates or deepest >= found.depth(limit) > 1
    )
    return Batch(taken, more=more, place=onward)


@dataclass(frozen=True, slots=True)
class _Found:
    """How many agents with a queue were looked at, how many of them may start something, which
    of them and which companies are locked now, and where the look ended."""

    seen: int
    candidates: int
    companies: list[uuid.UUID]
    agents: list[uuid.UUID]
    last: Place

    def depth(self, limit: int) -> int:
        """How many runs of each agent are considered."""
        return -(-limit // max(1, len(self.agents)))


def _take_turn(cursor: Any, worker_id: uuid.UUID) -> None:
    statement = gate.TURN.format(
        patience_ms=int(PATIENCE_SECONDS * 1000), worker_id=uuid.UUID(str(worker_id))
    )
    with connection.wrap_database_errors:
        cursor.execute(statement)  # without values, so that it is one message


def _look(cursor: Any, values: Mapping[str, Any], place: Place, window: int) -> _Found:
    _execute(
        cursor,
        gate.LOOK,
        {
            **values,
            "company_id": place.company_id,
            "agent_id": place.agent_id,
            "window": window,
            "most": max(FEWEST_COMPANIES, values["limit"] // 6),
        },
    )
    row = cursor.fetchone()
    if row is None:
        return _Found(0, 0, [], [], place)
    seen, candidates, companies, agents, *last = row
    return _Found(seen, candidates, companies, agents, Place(*last))


def _take(cursor: Any, values: Mapping[str, Any], found: _Found) -> list[tuple[Any, ...]]:
    """Start what fits; returns what was moved, be it started or dropped."""
    _execute(
        cursor,
        gate.TAKE,
        {
            **values,
            "companies": found.companies,
            "agents": found.agents,
            "depth": found.depth(values["limit"]),
            "slack": max(1, SLACK // len(found.agents)),
        },
    )
    rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


def _cursor() -> Any:
    """A cursor that binds on the server, so that the long statements are planned once."""
    connection.ensure_connection()
    return psycopg.Cursor(connection.connection)


def _execute(cursor: Any, statement: str, values: Mapping[str, Any]) -> None:
    # Behind a pooler in transaction mode a prepared statement may be on another connection.
    pooled = connection.settings_dict["DISABLE_SERVER_SIDE_CURSORS"]
    with connection.wrap_database_errors:
        cursor.execute(statement, values, prepare=not pooled)


def _tell(moved: list[tuple[Any, ...]]) -> None:
    """One notice for each page that shows something of it."""
    notices: dict[tuple[uuid.UUID, str, uuid.UUID | None], None] = {}
    for run_id, _, company_id, agent_id, issue_id, *_ in moved:
        notices[company_id, "runs", None] = None
        notices[company_id, "run", run_id] = None
        notices[company_id, "agent", agent_id] = None
        if issue_id is not None:
            notices[company_id, "issue", issue_id] = None
    live.publish_all(notices)
