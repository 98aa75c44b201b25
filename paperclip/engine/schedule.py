"""What the rest of the instance asks of the engine: its schedules, a first shift, an orderly end.

django-q2 knows three schedules, made by code only and without arguments, because one that it
cannot read stops all others. A shift is not scheduled but rung for: a bell waits in the queue of
the cluster `dispatch`, and whoever has a free worker answers it.
"""

from __future__ import annotations

import hashlib
import os
import socket
from datetime import timedelta

from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.utils import timezone
from django_q.brokers import get_broker
from django_q.models import OrmQ, Schedule
from django_q.tasks import async_task

from agents import workers
from paperclip.engine import bell

CLUSTER = "dispatch"
_SHIFT = "paperclip.engine.tasks.shift"
_SCHEDULES: dict[str, tuple[str, str, int | None]] = {
    "minute": ("paperclip.engine.tasks.minute", Schedule.MINUTES, 1),
    "canary": ("paperclip.engine.tasks.canary", Schedule.MINUTES, 1),
    "night": ("paperclip.engine.tasks.night", Schedule.DAILY, None),
}


def instance() -> str:
    """The name of this instance: given by `manage.py up`, else the host and its data folder."""
    given = os.environ.get("PAPERCLIP_INSTANCE", "")
    if given:
        return given[:120]
    place = hashlib.sha256(str(settings.DATA_DIR).encode()).hexdigest()[:8]
    return f"{socket.gethostname()[:100]}-{place}"


def ensure() -> None:
    """Make the schedules what they should be and ring for the first shifts. Safe to repeat.

    django-q2 has no unique rule for names, so a lock lets one process do this at a time.
    """
    now = timezone.now()
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('schedules', 0))")
        Schedule.objects.exclude(name__in=_SCHEDULES).filter(
            func__startswith="paperclip.engine."
        ).delete()
        for name, (func, kind, minutes) in _SCHEDULES.items():
            known = list(Schedule.objects.filter(name=name).order_by("id"))
            for double in known[1:]:
                double.delete()
            wanted = {"func": func, "schedule_type": kind, "minutes": minutes, "cluster": None}
            if known and all(getattr(known[0], k) == v for k, v in wanted.items()):
                continue
            Schedule.objects.filter(name=name).delete()
            first = now if kind != Schedule.DAILY else now + timedelta(hours=1)
            Schedule.objects.create(name=name, next_run=first, repeats=-1, **wanted)
    _forget_answered_bells()
    ring()


def ring() -> None:
    """See to it that a bell for a shift waits in the queue; one a worker is enough.

    A bell that nobody needs is answered at once and does nothing.
    """
    broker = get_broker(CLUSTER)
    for _ in range(max(0, settings.SHIFTS - (broker.queue_size() or 0))):
        async_task(_SHIFT, cluster=CLUSTER, broker=broker)


def beacon(name: str | None = None) -> str:
    """What the canary of an instance's default cluster (this one's) is called in the beacons."""
    # The end of the name is what differs between two instances.
    return f"default@{(name or instance())[-50:]}"


def ring_canary() -> None:
    """Send a canary through the default cluster, whoever takes it."""
    async_task(_SCHEDULES["canary"][0], cluster="default", broker=get_broker("default"))


def away() -> tuple[type[Exception], ...]:
    """What a broker that cannot be reached raises. The client of Redis takes ten megabytes of each
    process, so it is loaded only where Redis is used."""
    if not settings.REDIS_URL:
        return (DatabaseError,)
    import redis

    return DatabaseError, redis.RedisError


def queue_sizes() -> dict[str, int]:
    """How many tasks wait in each queue; a broker that is away says nothing."""
    try:
        return {name: get_broker(name).queue_size() or 0 for name in ("default", CLUSTER)}
    except away():
        return {}


def request_drain(name: str | None = None) -> int:
    """Ask the shifts of an instance (this one) to claim nothing more, put their runs down after
    the grace and end. Returns how many live shifts were asked."""
    name = name or instance()
    asked = workers.drain(instance=name)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, %s)", [bell.DRAIN_CHANNEL, name])
    return asked


def _forget_answered_bells() -> None:
    """Bells that a killed worker had taken stay locked in the table for as long as a shift may
    last. They are worth nothing: a shift that lives does not need its bell any more."""
    if not settings.REDIS_URL:
        OrmQ.objects.filter(key=CLUSTER, lock__gt=timezone.now()).delete()
