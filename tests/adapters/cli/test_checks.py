""" "Test this configuration" tells what is missing before a run has to."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from agents import adapters
from agents.adapters.base import Check
from tests.adapters.cli.conftest import Stage, alive


def check(type_: str, config: dict[str, Any], **secrets: str) -> list[Check]:
    adapter: Any = adapters.get(type_)
    parsed = adapter.Config.model_validate(config)
    return asyncio.run(adapter.test(parsed, secrets, hello=False))


def program(folder: Path, name: str, script: str) -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_a_program_that_is_missing(tmp_path: Path) -> None:
    (found,) = check("codex_local", {"command": str(tmp_path / "codex")})

    assert not found.ok
    assert "Install it" in found.hint


def test_a_program_that_does_not_start(tmp_path: Path) -> None:
    (found,) = check("codex_local", {"command": program(tmp_path, "codex", "exit 1")})

    assert not found.ok
    assert "does not tell its version" in found.message


def test_a_program_that_never_ends_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.adapters.cli.VERSION_SECONDS", 0.3)
    marker = tmp_path / "pid"
    path = program(tmp_path, "codex", f"sleep 600 & echo $! > {marker}; wait")

    (found,) = check("codex_local", {"command": path})

    assert not found.ok
    assert not alive(marker)


def test_a_key_or_its_absence(tmp_path: Path) -> None:
    command = program(tmp_path, "codex", "echo codex-cli 1.2.3")

    version, login, *_ = check("codex_local", {"command": command})
    assert "version 1.2.3" in version.message
    assert not login.ok
    assert "OPENAI_API_KEY" in login.hint

    env = {"OPENAI_API_KEY": {"secret": "KEY"}}
    _, login, *_ = check("codex_local", {"command": command, "env": env}, KEY="sk-1")
    assert login.ok
    assert "sk-1" not in login.message


def test_a_secret_without_a_value(tmp_path: Path) -> None:
    command = program(tmp_path, "codex", "echo 1.2.3")

    (found,) = check("codex_local", {"command": command, "env": {"X": {"secret": "GONE"}}})

    assert not found.ok
    assert "GONE" in found.message


def test_a_login_in_a_folder_of_the_operators(tmp_path: Path) -> None:
    (tmp_path / "auth.json").write_text("{}")
    command = program(tmp_path, "codex", "echo 1.2.3")

    _, login, *_ = check("codex_local", {"command": command, "env": {"CODEX_HOME": str(tmp_path)}})

    assert login.ok


def test_claudes_refusal_to_bypass_as_root(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {
        "command": stage.command,
        "dangerouslySkipPermissions": True,
        "env": {"ANTHROPIC_API_KEY": "sk-x"},
    }
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "as root" in check("claude_local", config)[-1].message

    config["env"] = {"ANTHROPIC_API_KEY": "sk-x", "IS_SANDBOX": "1"}
    assert check("claude_local", config)[-1].ok

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    config["env"] = {"ANTHROPIC_API_KEY": "sk-x"}
    found = check("claude_local", config)[-1]
    assert found.ok
    assert "may do anything" in found.message


def hello(stage: Stage, do: str, **more: str) -> list[Check]:
    """What the button says: the adapter's test as `trial.py` calls it, with a real start."""
    env = {
        "ANTHROPIC_API_KEY": "sk-x",
        "FAKE_DO": do,
        "FAKE_LOG": str(stage.root / "calls.jsonl"),
        **more,
    }
    adapter = adapters.get("claude_local")
    config = adapter.Config.model_validate({"command": stage.command, "env": env})
    return asyncio.run(adapter.test(config, {}))


def test_the_button_asks_for_one_word(stage: Stage) -> None:
    checks = hello(stage, "answer OK")

    assert all(check.ok for check in checks), checks
    assert checks[-1].message.endswith("s: OK")
    (call,) = stage.calls
    assert "Answer with the word OK" in call["prompt"]


@pytest.mark.parametrize(
    ("do", "hint"),
    [
        ("fail 401", "ANTHROPIC_API_KEY"),
        ("fail 404", "Correct `model`"),
        ("fail 429", "at its limit"),
        ("fail 529", "try again later"),
        ("silent", ""),
    ],
)
def test_an_answer_that_did_not_come_is_explained(stage: Stage, do: str, hint: str) -> None:
    found = hello(stage, do)[-1]

    assert (found.name, found.ok) == ("Answer", False)
    assert found.message
    assert hint in found.hint


def test_who_is_not_logged_in_is_not_started(stage: Stage) -> None:
    checks = hello(stage, "answer", ANTHROPIC_API_KEY="")

    assert [check.ok for check in checks if check.name == "Login"] == [False]
    assert not (stage.root / "calls.jsonl").exists()


def test_geminis_distrust_of_a_folder(tmp_path: Path) -> None:
    command = program(tmp_path, "gemini", "echo 0.61.0")
    env = {"GEMINI_API_KEY": "x"}

    config = {"command": command, "env": env, "trustWorkspace": False}

    assert "does not trust" in check("gemini_local", config)[-1].message


@pytest.mark.parametrize(
    ("type_", "config"),
    [
        ("claude_local", {"args": ["--dangerously-skip-permissions"]}),
        ("claude_local", {"permissionMode": "bypassPermissions"}),
        ("claude_local", {"extraArgs": "--model x"}),
        ("claude_local", {"extraArgs": ["a\0b"]}),
        ("codex_local", {"sandbox": "danger-full-access"}),
        ("codex_local", {"baseUrl": "ftp://x"}),
        ("codex_local", {"maxTurnsPerRun": 0}),
        ("gemini_local", {"approvalMode": "yolo"}),
        ("opencode_local", {"command": ""}),
        ("opencode_local", {"env": {"A B": "x"}}),
    ],
)
def test_a_configuration_that_cannot_be_meant_is_refused(
    type_: str, config: dict[str, Any]
) -> None:
    with pytest.raises(adapters.ConfigError):
        adapters.validate(type_, config)


def test_the_secrets_that_a_run_will_ask_for_are_known() -> None:
    config = {"env": {"ANTHROPIC_API_KEY": {"type": "secret_ref", "secret": "KEY"}, "B": "plain"}}

    assert adapters.secret_names("claude_local", config) == {"KEY"}
