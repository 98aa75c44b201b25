"""What django-q2 calls by name. Every task is synchronous, takes nothing, returns None and may be
delivered twice or never: what it does is decided by rows.
"""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from agents import workers
from agents.models import Beacon
from paperclip.engine import schedule, station, tick

KEEP_BEACONS = timedelta(hours=1)  # of instances that are gone


def shift() -> None:
    """Carry runs for hours, unless this instance's shifts are all at work already."""
    station.in_cluster()


def minute() -> None:
    """The minute's round, and a bell for shifts that are missing."""
    tick.minute(now=workers.time_of_day())
    schedule.ring()


def night() -> None:
    """Once a day."""
    tick.night()


def canary() -> None:
    """A sign of life that went all the way through a cluster of this instance; the watchdog looks
    for it."""
    now = timezone.now()
    Beacon.objects.update_or_create(name=schedule.beacon(), defaults={"beat_at": now})
    Beacon.objects.filter(beat_at__lt=now - KEEP_BEACONS).delete()
