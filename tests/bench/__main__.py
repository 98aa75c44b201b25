"""`make bench`, or one of them: `python -m tests.bench claims`. `--write` updates the docs.

Each benchmark runs in a process of its own, because it chooses its own data folder and Django reads
that once.
"""

from __future__ import annotations

import importlib
import subprocess
import sys

from tests.bench.report import circumstances, write

NAMES = (
    *("claims", "runs", "tick", "money", "http", "wake", "streams", "pages"),
    *("fanout", "tabs", "logs"),
)
LONG = ("soak",)  # only by name


def main(arguments: list[str]) -> int:
    wanted = [a for a in arguments if not a.startswith("-")]
    unknown = set(wanted) - {*NAMES, *LONG}
    if unknown:
        known = ", ".join((*NAMES, *LONG))
        print(f"There is no benchmark {', '.join(sorted(unknown))}; there are {known}.")
        return 2
    if len(wanted) == 1:
        print(f"{wanted[0]}: {circumstances()}", flush=True)
        table = importlib.import_module(f"tests.bench.{wanted[0]}").bench()
        print(table.markdown())
        if "--write" in arguments:
            write(table)
        return 0
    flags = [a for a in arguments if a.startswith("-")]
    codes = [
        subprocess.run([sys.executable, "-m", "tests.bench", name, *flags], check=False).returncode
        for name in wanted or NAMES
    ]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
