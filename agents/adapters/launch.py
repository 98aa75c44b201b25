"""Runs inside the new process, just before it becomes the agent's program.

Sets what only the process itself can set: that it dies with its parent, and its limits. It is a
program of its own because code between fork and exec is not safe in a process with threads.
Imports the standard library only; started with `-I -S`, so nothing of the server is in reach.

    launch.py PARENT_PID LIMITS_JSON EXECUTABLE ARGV0 [ARGUMENT …]
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38


def main() -> None:
    parent, limits, executable, *argv = sys.argv[1:]
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if os.getppid() != int(parent):  # it died before the line above could tell us
            os._exit(125)
    for name, wanted in json.loads(limits).items():
        kind = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(kind)
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (value, value))
    for number in (signal.SIGPIPE, signal.SIGINT):  # Python changed them for itself
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(executable, argv)  # noqa: S606 (an argument list, no shell)
    except OSError as error:
        sys.stderr.write(f"{executable}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(126)


if __name__ == "__main__":
    main()
