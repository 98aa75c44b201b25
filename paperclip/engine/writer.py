"""The one writer of a shift: the output of all its runs, every 100 ms, in one statement.

A database that is away makes it wait with the rows in hand; a lease that has run out makes it
throw them away.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections import Counter
from collections.abc import Callable, Mapping

from agents import meters, output
from companies import live
from paperclip.engine.hands import Hands, about, traceback_of
from paperclip.engine.journal import Journal
from paperclip.engine.lease import Lease

log = logging.getLogger(__name__)

FLUSH_SECONDS = 0.1
FLUSH_ROWS = 5_000

Journals = Mapping[uuid.UUID, Journal]


class Writer:
    """`journals()` are those of the runs going on; `on_stale` hears of a run that is not ours."""

    def __init__(
        self,
        pen: Hands,
        lease: Lease,
        *,
        journals: Callable[[], Journals],
        on_stale: Callable[[uuid.UUID], None],
    ) -> None:
        self._pen = pen
        self._lease = lease
        self._journals = journals
        self._on_stale = on_stale
        self._failing = False

    async def write(self) -> None:
        """Write until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            journals = self._journals()
            in_turn = list(journals.values())
            random.shuffle(in_turn)
            rows = [row for journal in in_turn for row in journal.take()]
            while rows:
                part, rows = rows[:FLUSH_ROWS], rows[FLUSH_ROWS:]
                while True:
                    if await self._write(part, journals):
                        break
                    await asyncio.sleep(about(0.4))

    async def _write(self, rows: list[output.Row], journals: Journals) -> bool:
        if not self._lease.good:
            for journal in journals.values():
                journal.refuse()
            return True
        try:
            owners = await self._pen.call(write_and_tell, rows)
        except Exception as error:
            if not self._failing:
                log.warning("cannot write output: %s", error, exc_info=traceback_of(error))
            self._failing = True
            return False
        self._failing = False
        for run_id, count in Counter(row.run_id for row in rows).items():
            if run_id in owners:
                journals[run_id].written(count)
                continue
            log.warning("stale_write_blocked run=%s what=output rows=%s", run_id, count)
            meters.count(meters.STALE_WRITES, "output", times=count)
            journals[run_id].refuse()
            self._on_stale(run_id)
        return True


def write_and_tell(rows: list[output.Row]) -> dict[uuid.UUID, uuid.UUID]:
    """Write rows and tell the pages which runs have news, in few packed notices."""
    owners = output.write(rows)
    for run_id, company_id in owners.items():
        live.publish(company_id, "run", run_id)
    return owners
