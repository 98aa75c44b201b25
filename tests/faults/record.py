"""What each fault test shows, as one JSON line: a pytest plugin, its marker and its fixture.

`@pytest.mark.fault("T13", "what happens")` names the test of the plan that a test is (part of);
the fixture `figures` takes what it measured. With PAPERCLIP_FAULTS_FILE the lines are kept there;
`python -m tests.faults.run` makes docs/faults.md of them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

FILE = "PAPERCLIP_FAULTS_FILE"
_FIGURES: pytest.StashKey[dict[str, Any]] = pytest.StashKey()
_BEGAN: pytest.StashKey[float] = pytest.StashKey()


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What this test measured, by name; plain JSON values."""
    return request.node.stash.setdefault(_FIGURES, {})


def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_BEGAN] = time.monotonic()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[pytest.TestReport]:
    report = yield
    if report.when == "call" or (report.when == "setup" and not report.passed):
        for mark in item.iter_markers("fault"):
            _tell(item, mark, report)
    return report


def _tell(item: pytest.Item, mark: pytest.Mark, report: pytest.TestReport) -> None:
    number, what = mark.args
    line = json.dumps(
        {
            "fault": number,
            "what": what,
            "test": item.nodeid,
            "long": item.get_closest_marker("faults_long") is not None,
            "scale": float(os.environ.get("PAPERCLIP_FAULTS_SCALE", "1")),
            "outcome": report.outcome,
            "seconds": round(time.monotonic() - item.stash[_BEGAN], 1),
            "figures": item.stash.get(_FIGURES, {}),
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "load": round(os.getloadavg()[0], 1),
        },
        ensure_ascii=False,
    )
    print(line)
    if os.environ.get(FILE):
        with Path(os.environ[FILE]).open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """PAPERCLIP_FAULTS_ONLY: the tests of these numbers and no others."""
    wanted = set(os.environ.get("PAPERCLIP_FAULTS_ONLY", "").split())
    if not wanted:
        return
    kept = [item for item in items if any(m.args[0] in wanted for m in item.iter_markers("fault"))]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept
