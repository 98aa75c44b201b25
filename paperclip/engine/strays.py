"""Programs that have outlived their run: children of a shift that was killed, or of its parent.

A shift ends what it has started, and the kernel ends its child when it dies; what that child had
started lives on, and would work beside the run that repeats it. So whoever is alive on a machine
looks there for processes that carry the mark of a run which has ended.
"""

from __future__ import annotations

import logging
import os
import uuid
from datetime import timedelta

import psutil
from django.db.models import Q

from agents.adapters.proctree import PROCESS_MARK
from agents.models import HeartbeatRun
from companies import clock

log = logging.getLogger(__name__)

# A run that has just ended may still be giving its programs the time to end by themselves; one that
# lost its holder has nobody who does, and what repeats it may be about to begin.
GRACE = timedelta(seconds=30)
LEFT = (HeartbeatRun.Status.LOST, HeartbeatRun.Status.UNKNOWN)
_MARK = f"{PROCESS_MARK}=".encode()


def end() -> int:
    """Ends them; returns how many there were. Those of other databases are nobody we know."""
    marked = _marked()
    if not marked:
        return 0
    over = HeartbeatRun.objects.exclude(status__in=HeartbeatRun.LIVE).filter(
        Q(status__in=LEFT) | Q(finished_at__lt=clock.now() - GRACE), id__in=set(marked.values())
    )
    ended = set(over.values_list("id", flat=True))
    count = 0
    for process, run_id in marked.items():
        if run_id not in ended:
            continue
        try:
            process.kill()  # checks the start time, so never a stranger
        except psutil.Error:
            continue
        log.warning("run %s: a program that had outlived it was ended", run_id)
        count += 1
    return count


def _marked() -> dict[psutil.Process, uuid.UUID]:
    found = {}
    own = os.getpid()
    for pid in psutil.pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ:
                said = [one for one in environ.read().split(b"\0") if one.startswith(_MARK)]
            if said and pid != own:
                found[psutil.Process(pid)] = uuid.UUID(said[0][len(_MARK) :].decode())
        except (OSError, ValueError, psutil.Error):
            continue
    return found
