"""The shape of the house: imports run downward only, and adapters know no models."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ["companies", "agents", "issues", "billing", "paperclip"]


def modules(app: str) -> list[Path]:
    return sorted(p for p in (ROOT / app).rglob("*.py") if "migrations" not in p.parts)


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """(line, module) of every import that runs, wherever it stands in the file."""
    tree = ast.parse(path.read_text())
    skipped = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module


@pytest.mark.parametrize("app", FLOORS)
def test_no_import_climbs_a_floor(app: str) -> None:
    above = set(FLOORS[FLOORS.index(app) + 1 :])
    climbing = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in modules(app)
        for line, name in imported(path)
        if name.split(".")[0] in above
    ]
    assert not climbing, "\n".join(climbing)


def test_adapters_know_neither_django_nor_our_models() -> None:
    strangers = [
        f"{path.name}:{line} imports {name}"
        for path in sorted((ROOT / "agents" / "adapters").glob("*.py"))
        for line, name in imported(path)
        if name.split(".")[0] in {"django", *FLOORS} and not name.startswith("agents.adapters")
    ]
    assert not strangers, "\n".join(strangers)


def test_there_is_no_junk_room() -> None:
    junk = [
        str(path.relative_to(ROOT))
        for app in FLOORS
        for path in modules(app)
        if path.stem in {"core", "common", "utils", "helpers", "misc", "signals"}
    ]
    assert not junk
