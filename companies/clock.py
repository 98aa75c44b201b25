"""The time of day as the database has it, for processes that carry work.

Machines disagree about the time, and what one writes as "not before" another reads. Who is alive
is decided on the database's clock anyway (`agents/workers.py`); with it comes what time it is
there, and from then on `now` is corrected. Small differences stay: they would only be noise.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.utils import timezone

log = logging.getLogger(__name__)

TOLERATED = timedelta(seconds=2)

_offset = timedelta(0)


def now() -> datetime:
    """The moment, by the database's clock as far as this process has heard it."""
    return timezone.now() + _offset


def agree(theirs: datetime) -> timedelta:
    """Hear the database's time, just asked for. Returns by how much this machine is corrected."""
    global _offset
    apart = theirs - timezone.now()
    corrected = apart if abs(apart) > TOLERATED else timedelta(0)
    if abs(corrected - _offset) > TOLERATED:
        log.warning("this machine's clock is %.0f s off the database's", -apart.total_seconds())
        _offset = corrected
    elif not corrected:
        _offset = corrected
    return _offset
