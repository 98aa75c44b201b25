"""What django-q2 calls by name. Every task is synchronous, takes nothing, returns None and may be
delivered twice or never: what it does is decided by rows.
"""

from __future__ import annotations

from django.utils import timezone

from agents.models import Beacon
from paperclip.engine import schedule, station, tick


def shift() -> None:
    """Carry runs for hours, unless this instance's shifts are all at work already."""
    station.in_cluster()


def minute() -> None:
    """The minute's round, and a bell for shifts that are missing."""
    tick.minute()
    schedule.ring()


def night() -> None:
    """Once a day."""
    tick.night()


def canary() -> None:
    """A sign of life that went all the way through the cluster; the watchdog looks for it."""
    Beacon.objects.update_or_create(name="default", defaults={"beat_at": timezone.now()})
