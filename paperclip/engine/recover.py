"""What happens to the runs of a shift that is gone: found by their expired lease, ended under a
new epoch, queued again where that is safe, and in any case visible at their issue.

Any process may do this at any time; an advisory lock for each run lets one do it at once.
"""

from __future__ import annotations

import logging
import random
import uuid
from datetime import datetime

from django.db import connection, transaction

from agents import meters, runs
from agents.models import HeartbeatRun
from companies import clock, faultpoints
from issues import work
from issues.models import Checkout

log = logging.getLogger(__name__)


def sweep(*, now: datetime | None = None) -> list[runs.Lost]:
    """Take over what dead holders left. Returns what was found and what became of it."""
    now = now or clock.now()
    lost, failed = [], 0
    orphans = runs.expired()
    random.shuffle(orphans)  # several that sweep at once begin at different ends
    for run_id, epoch in orphans:
        try:
            found = give_up(run_id=run_id, epoch=epoch, now=now)
        except Exception:
            # One run's trouble must not keep the others from being rescued. When it is everybody's,
            # one of them says it for all.
            if not failed:
                log.exception("run %s: not rescued", run_id)
            failed += 1
            continue
        if found is not None:
            log.warning("run %s: its holder is gone, now %s", run_id, found.status)
            lost.append(found)
    if failed > 1:
        log.error("%s more runs: not rescued", failed - 1)
    return lost


@transaction.atomic
def give_up(
    *, run_id: uuid.UUID, epoch: int, now: datetime, begun: bool = True
) -> runs.Lost | None:
    """End one run whose holder is gone, or has not `begun` it. None when somebody else does, or
    was faster."""
    if not _mine(run_id):
        return None
    run = runs.held_for_good(run_id=run_id, epoch=epoch)
    if run is None or run.status != HeartbeatRun.Status.RUNNING:
        return None
    loss = runs.loss_of(run, begun=begun)
    faultpoints.reach("rescuing", run_id)
    work.report(
        run=run,
        status=loss.status,
        code=loss.code,
        message=loss.message,
        retry_at=now if loss.attempt is not None else None,
        now=now,
    )
    found = runs.lose(run=run, loss=loss, now=now)
    if found is None:
        transaction.set_rollback(True)
    else:
        meters.count_at_commit(meters.RESCUES, found.status)
    return found


def tidy(*, now: datetime | None = None) -> int:
    """Report runs that ended without their engine (a cancelled run that went on elsewhere), so
    that no issue stays in the hands of a run that is over. Returns how many."""
    now = now or clock.now()
    ended = (
        Checkout.objects.filter(released_at=None, run__isnull=False)
        .exclude(run__status__in=HeartbeatRun.LIVE)
        .values_list("run_id", flat=True)[:100]
    )
    count = 0
    for run_id in list(ended):
        with transaction.atomic():
            if not _mine(run_id):
                continue
            run = HeartbeatRun.objects.select_related("agent", "issue").get(pk=run_id)
            work.report(
                run=run,
                status=run.status,
                summary=run.summary,
                code=run.code,
                message=run.message,
                now=now,
            )
            count += 1
    return count


def _mine(run_id: uuid.UUID) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_try_advisory_xact_lock(hashtextextended('recover:' || %s, 0))",
            [str(run_id)],
        )
        return bool(cursor.fetchone()[0])
