"""Places where a test can hurt a process: silent unless the environment asks, and never in
production."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from companies import faultpoints
from companies.faultpoints import Action

PASS = "from companies import faultpoints as f\nfor n in range(3): f.reach('here', n)\nprint('end')"


def passing(tmp_path: Path, plan: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PASS],
        env={faultpoints.VARIABLE: plan.format(path=tmp_path / "notes"), **env},
        capture_output=True,
        text=True,
        timeout=30,
    )


def test_a_plan_names_places_actions_and_passings():
    assert faultpoints.parse("a=kill@3, b=note:/x ,c=sleep:1.5@2") == {
        "a": Action("kill", "", 3),
        "b": Action("note", "/x"),
        "c": Action("sleep", "1.5", 2),
    }
    assert faultpoints.parse("") == {}
    with pytest.raises(ValueError, match="no action 'explode'"):
        faultpoints.parse("a=explode")


def test_without_a_plan_nothing_happens():
    faultpoints.reach("here")
    assert faultpoints._plan == {}


def test_a_note_is_one_line_a_passing(tmp_path):
    assert passing(tmp_path, "here=note:{path}").stdout == "end\n"
    lines = (tmp_path / "notes").read_text().splitlines()
    assert [line.split()[2:] for line in lines] == [["here", "0"], ["here", "1"], ["here", "2"]]


def test_a_kill_is_one_and_at_its_passing(tmp_path):
    assert passing(tmp_path, "here=kill@2,there=kill").returncode == -9
    assert passing(tmp_path, "here=kill@4").returncode == 0
    assert "Injected" in passing(tmp_path, "here=raise").stderr


def test_production_knows_no_faults(tmp_path):
    done = passing(tmp_path, "here=kill", PAPERCLIP_PROFILE="production")
    assert (done.returncode, done.stdout) == (0, "end\n")
