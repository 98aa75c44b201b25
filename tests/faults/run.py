"""`make faults`: the fault suite in its long form, and docs/faults.md from what it showed.

`python -m tests.faults.run [--short] [T1 T13 ...]`. Each test adds one JSON
line (`record.py`); the last line of each test is kept in docs/faults.jsonl, from which the page is
made. A test that is run alone replaces its own line only, and each line has its own date and load.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.report import circumstances
from tests.faults.record import FILE

ROOT = Path(__file__).resolve().parents[2]
LINES = ROOT / "docs" / "faults.jsonl"
PAGE = ROOT / "docs" / "faults.md"

HEAD = """# Faults

What the engine is put through, and what came of it. Every line is written by a command:

```sh
make faults                        # the whole suite, long form (about an hour, longer when busy)
make faults ARGS="T1 T13"          # some of it
make faults ARGS="--short"         # the short forms; these are part of `make test` too
```

Each test runs real processes on a real PostgreSQL. Nothing is simulated but the model: an adapter
that takes some milliseconds (`tests/faults/quick.py`), or a protocol server.

- *lost*: issues that did not end as done. *double*: issues with more than one accepted run.
  *said twice*: issues with more than one closing comment. *wrong epoch*: rows that a fenced writer
  has written. *drift of the books*: places where ledger, totals, runs and reservations disagree.
  All of them must be 0 and are left out of the figures below when they are.
- The long form may be asked for a part of its size (`PAPERCLIP_FAULTS_SCALE=0.1`), which its line
  says. Rates, shares and rescue times mean what they say only on a machine that does nothing else:
  look at the load beside them. Two cores are full at 2.
- `runs lost` is no loss: it counts runs whose holder died and whose work another run took up.
- The network is broken by a proxy of our own (`tests/faults/proxy.py`): it delays, swallows and
  resets, and drops the acknowledgement of a COMMIT that the server has carried out.
- Processes are ended at named places (`companies/faultpoints.py`), in the order in which a run
  passes them: claiming, claimed, opened, reserved, streaming, answered, settled, written, reported,
  finished, committed, and notifying; `rescuing` in the rescue of a lost run; `spooled` when a
  receipt has become a file, `unspooled` when it is booked and the file still there. The places do
  nothing unless `PAPERCLIP_FAULT_POINTS` is set when a process starts, and never in the production
  profile.

## Results
"""
ALWAYS_ZERO = (
    "lost", "double", "said twice", "still live", "still held", "wrong epoch", "drift of the books",
)  # fmt: skip


def main(arguments: list[str]) -> int:
    asked = _arguments().parse_args(arguments)
    if asked.page:
        write()
        return 0
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "lines"
        file.touch()
        code = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
                *("-m", "fault and not faults_long" if asked.short else "fault or faults_long"),
            ],
            cwd=ROOT,
            env={**os.environ, FILE: str(file), "PAPERCLIP_FAULTS_ONLY": " ".join(asked.faults)},
            check=False,
        ).returncode
        keep([json.loads(line) for line in file.read_text("utf-8").splitlines()])
    write()
    return code


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make faults ARGS=…")
    parser.add_argument("faults", nargs="*", help="some of them, such as T1 T13; otherwise all")
    parser.add_argument("--short", action="store_true", help="the short forms only")
    parser.add_argument("--page", action="store_true", help="only write docs/faults.md anew")
    return parser


def machine() -> str:
    """Processor, cores, memory and Python, without the moment and its load."""
    return " · ".join(circumstances().split(" · ")[1:-1])


def keep(fresh: list[dict[str, Any]]) -> None:
    """The last line of each test, in docs/faults.jsonl."""
    known: dict[tuple[str, str], dict[str, Any]] = {}
    before = LINES.read_text("utf-8").splitlines() if LINES.exists() else []
    for line in [*map(json.loads, before), *({**one, "machine": machine()} for one in fresh)]:
        known[line["fault"], line["test"]] = line
    ordered = sorted(known.values(), key=lambda one: (_order(one["fault"]), one["test"]))
    text = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in ordered)
    LINES.write_text(text, "utf-8")


def write() -> None:
    """docs/faults.md from docs/faults.jsonl."""
    lines = [json.loads(line) for line in LINES.read_text("utf-8").splitlines()]
    rows = ["| test | what happens | form | outcome | figures | took | when (UTC), load |"]
    rows.append("|---|---|---|---|---|---|---|")
    rows += [_row(line) for line in _folded(lines)]
    machines = sorted({line["machine"] for line in lines})
    foot = f"\nRun on: {'; '.join(machines)}. The load is that of the last minute of each test.\n"
    PAGE.write_text(HEAD + "\n" + "\n".join(rows) + "\n" + foot, "utf-8")


def _folded(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cases of one test that measured nothing are one line: the last, and how many."""
    folded: dict[object, dict[str, Any]] = {}
    for line in lines:
        name = line["test"].partition("[")[0]
        key = line["test"] if line["figures"] else (line["fault"], name, line["outcome"])
        cases = folded.get(key, {}).get("cases", 0) + 1
        folded[key] = {**line, "cases": cases}
        if cases > 1:
            folded[key]["test"] = f"{name}[{cases} cases]"
    return list(folded.values())


def _row(line: dict[str, Any]) -> str:
    figures = ", ".join(
        f"{name.replace('_', ' ')} {_value(value)}"
        for name, value in line["figures"].items()
        if not (name in ALWAYS_ZERO and value == 0)
    )
    clean = all(line["figures"].get(name, 0) == 0 for name in ALWAYS_ZERO)
    if clean and any(name in line["figures"] for name in ALWAYS_ZERO):
        figures = ", ".join(filter(None, ("0 lost, 0 double", figures)))
    cells = (
        line["fault"],
        f"{line['what']}<br>`{line['test'].rpartition('::')[2]}`",
        _form(line),
        line["outcome"],
        figures,
        f"{line['seconds']:g} s",
        f"{line['at'][:16].replace('T', ' ')}, {line['load']:g}",
    )
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def _form(line: dict[str, Any]) -> str:
    if not line["long"]:
        return "short"
    return "long" if line.get("scale", 1) == 1 else f"long, {line['scale']:g} of its size"


def _value(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return ", ".join(map(_value, value)) if isinstance(value, list) else str(value)


def _order(fault: str) -> tuple[int, str]:
    found = re.fullmatch(r"T(\d+)", fault)
    return (int(found[1]) if found else 1_000, fault)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
