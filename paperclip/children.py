"""How a child process lives and dies with its parent.

Linux tells a child of its parent's end (PR_SET_PDEATHSIG), also when the parent was killed with
-9; elsewhere the groups ended by the supervisor are all there is. `paperclip.supervisor` is the
reader to go to next.
"""

import ctypes
import multiprocessing
import multiprocessing.util
import os
import signal
import sys
from collections.abc import Callable

SUPERVISED = "PAPERCLIP_SUPERVISED"
_PR_SET_PDEATHSIG = 1
# Loaded here: between fork and exec nothing may be opened.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with(parent_pid: int, signum: signal.Signals = signal.SIGKILL) -> None:
    """Makes the calling process receive `signum` when the thread that started it ends.

    Start such children from a main thread only. If the parent `parent_pid` is gone already, the
    caller ends here.
    """
    if _libc is None:
        return
    _libc.prctl(_PR_SET_PDEATHSIG, int(signum), 0, 0, 0)
    # The parent may have ended between the fork and the call above; nobody would tell us then.
    if os.getppid() != parent_pid:
        os._exit(1)


def tied(signum: signal.Signals = signal.SIGKILL) -> Callable[[], None]:
    """Returns a `preexec_fn` for a child that is to end with this process."""
    parent_pid = os.getpid()
    return lambda: die_with(parent_pid, signum)


def follow_parent() -> None:
    """Ties this process's multiprocessing children, and itself if it is one, to their parents.

    django-q2 and granian start processes of their own, which would go on working when only their
    parent is killed. Does nothing unless `manage.py up` is the ancestor.
    """
    if os.environ.get(SUPERVISED) != "1":
        return
    _tie_to_multiprocessing_parent()
    multiprocessing.util.register_after_fork(
        follow_parent, lambda _: _tie_to_multiprocessing_parent()
    )


def _tie_to_multiprocessing_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        die_with(parent.pid)
