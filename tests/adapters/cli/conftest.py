"""A stand-in for a real program, and a brief that uses it."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from agents.adapters.base import Brief
from tests.adapters.conftest import make_brief

FAKE = Path(__file__).with_name("fake_claude.py")
RUN_TOKEN = "pcr_run_token_of_this_run"


@dataclasses.dataclass
class Stage:
    """A folder tree as the engine prepares it, with the program's notes of how it was called."""

    root: Path
    command: str

    @property
    def calls(self) -> list[dict[str, Any]]:
        log = self.root / "calls.jsonl"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def brief(self, do: str = "answer", *, env: dict[str, Any] | None = None, **more: Any) -> Brief:
        """A brief for the stand-in, which does `do`; configuration keys and fields of the brief."""
        fields = {field.name for field in dataclasses.fields(Brief)}
        config = {
            "command": self.command,
            "graceSec": 4,
            "env": {"FAKE_DO": do, "FAKE_LOG": str(self.root / "calls.jsonl"), **(env or {})},
            **{key: value for key, value in more.items() if key not in fields},
        }
        changes = {key: value for key, value in more.items() if key in fields}
        run_dir = self.root / f"run-{len(list(self.root.glob('run-*')))}"
        run_dir.mkdir()
        for name in ("agent", "workspace"):
            (self.root / name).mkdir(exist_ok=True)
        return dataclasses.replace(
            make_brief("Look after the boats."),
            **{
                "run_id": f"{self.root.name}-{run_dir.name}",
                "config": config,
                "api_url": "http://127.0.0.1:9",
                "api_key": RUN_TOKEN,
                "run_dir": str(run_dir),
                "agent_dir": str(self.root / "agent"),
                "workspace": str(self.root / "workspace"),
                "secrets": {"SECRET": "s3cret-value-of-acme"},
                **changes,
            },
        )


def alive(pid_file: Path) -> bool:
    """Whether the process whose number stands in this file still runs."""
    pid = int(pid_file.read_text())
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    command = tmp_path / "claude"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{FAKE}" "$@"\n')
    command.chmod(0o755)
    return Stage(tmp_path, str(command))
