"""Commands beside an instance know where it answers."""

import json
import os
from pathlib import Path

import psutil
import pytest

from paperclip import running

HERE = "http://127.0.0.1:8123"


@pytest.fixture(autouse=True)
def bare_shell(
    monkeypatch: pytest.MonkeyPatch, settings: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in running._NAMED_BY:
        monkeypatch.delenv(name, raising=False)
    settings.DATA_DIR = tmp_path
    settings.BASE_URL = "http://127.0.0.1:8000"


def test_the_address_is_that_of_the_instance_while_it_runs(tmp_path: Path) -> None:
    assert running.base_url() == "http://127.0.0.1:8000"
    with running.announced(tmp_path, HERE):
        assert running.base_url() == HERE
    assert running.base_url() == "http://127.0.0.1:8000"


@pytest.mark.parametrize("name", running._NAMED_BY)
def test_what_the_shell_says_goes_before_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "8000")
    with running.announced(tmp_path, HERE):
        assert running.base_url() == "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    "left",
    [
        json.dumps({"pid": os.getpid(), "began": psutil.Process().create_time() - 9, "url": HERE}),
        json.dumps({"pid": 2**22 + 1, "began": 0, "url": HERE}),
        '{"pid": "x"}',
        "[]",
        "",
    ],
)
def test_what_a_killed_instance_left_says_nothing(tmp_path: Path, left: str) -> None:
    (tmp_path / "running.json").write_text(left)
    assert running.base_url() == "http://127.0.0.1:8000"
