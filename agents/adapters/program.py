"""What starting any program takes: its configuration, its environment, its file.

The environment is made from nothing, here and nowhere else: what a program needs to start, the
run's own facts, and what the operator bound to the agent. Never anything else of the server's.
Read next: `agents/adapters/process.py`, `agents/adapters/cli.py`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator

from agents.adapters import fields
from agents.adapters.base import AdapterError, Brief, Code, Config
from agents.adapters.proctree import MARK, PROCESS_MARK

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"

Argument = Annotated[str, StringConstraints(max_length=20_000, pattern=r"^[^\x00]*$")]
Command = Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=r"^[^\x00]+$")]
Folder = Annotated[str, StringConstraints(max_length=1000, pattern=r"^[^\x00]*$")]


class ProgramConfig(Config):
    """Where and within which bounds a program runs; 0 switches the idle limit off."""

    cwd: Folder | None = None
    env: dict[str, fields.EnvValue] = Field(default_factory=dict, max_length=200)
    timeout_sec: fields.Seconds = 3600
    idle_timeout_sec: float = Field(900, ge=0, le=7 * 24 * 3600, allow_inf_nan=False)
    grace_sec: float = Field(10, ge=0, le=300, allow_inf_nan=False)
    max_output_bytes: int = Field(20 * 1024**2, ge=1024, le=1024**3)
    max_memory_mb: int | None = Field(None, ge=16, le=1024**2)
    max_cpu_sec: int | None = Field(None, ge=1, le=7 * 24 * 3600)
    max_processes: int | None = Field(None, ge=1, le=100_000)
    max_file_mb: int | None = Field(None, ge=1, le=1024**2)
    max_open_files: int = Field(4096, ge=16, le=1_000_000)
    isolation: Literal["none", "bubblewrap"] = "none"
    isolation_network: bool = True

    @field_validator("env")
    @classmethod
    def _names(cls, value: dict[str, fields.EnvValue]) -> dict[str, fields.EnvValue]:
        for name, bound in value.items():
            if not name.isascii() or not name.isidentifier():
                raise ValueError(f"{name[:100]!r} is not a name of an environment variable.")
            if name.startswith("PAPERCLIP_"):
                raise ValueError(f"{name} is set by Paperclip itself.")
            if isinstance(bound, str) and "\0" in bound:
                raise ValueError(f"The value of {name} contains a NUL character.")
        return value

    def secret_names(self) -> set[str]:
        return {v.secret for v in self.env.values() if isinstance(v, fields.SecretRef)}

    def limits(self) -> dict[str, int]:
        """The resource limits by the names of `resource.RLIMIT_…`."""
        wanted = {
            "NOFILE": self.max_open_files,
            "CORE": 0,
            "AS": self.max_memory_mb and self.max_memory_mb * 1024**2,
            "CPU": self.max_cpu_sec,
            "NPROC": self.max_processes,
            "FSIZE": self.max_file_mb and self.max_file_mb * 1024**2,
        }
        return {name: value for name, value in wanted.items() if value is not None}


def environment_base(
    config: ProgramConfig, secrets: Mapping[str, str], *, home: str
) -> dict[str, str]:
    """What any program needs, and what the operator set. Raises AdapterError for a secret that
    has no value."""
    env = {
        "PATH": os.environ.get("PATH") or DEFAULT_PATH,
        "HOME": home,
        "LANG": os.environ.get("LANG") or "C.UTF-8",
        "TERM": "dumb",
    }
    for name, bound in config.env.items():
        value = bound if isinstance(bound, str) else fields.secret_value(bound.secret, secrets)
        if "\0" in value:
            raise AdapterError(
                Code.CONFIG_INVALID, f"The value of {name} contains a NUL character."
            )
        env[name] = value
    return env


def run_facts(brief: Brief, *, cwd: str) -> dict[str, str]:
    """The variables by which a program knows its run. The run's id also marks all its
    processes."""
    facts = {
        "PAPERCLIP_API_URL": brief.api_url,
        "PAPERCLIP_API_KEY": brief.api_key,
        "PAPERCLIP_AGENT_ID": brief.agent_id,
        "PAPERCLIP_COMPANY_ID": brief.company_id,
        "PAPERCLIP_TASK_ID": brief.task.id if brief.task else "",
        "PAPERCLIP_WAKE_REASON": brief.reason,
        "PAPERCLIP_WORKSPACE_CWD": cwd,
    }
    given = {**facts, **brief.env}
    kept = {n: v for n, v in given.items() if v and "\0" not in v and "=" not in n}
    return {**kept, MARK: brief.run_id, PROCESS_MARK: brief.run_id}


def executable(command: str, *, cwd: str, path: str) -> str:
    """The file that `command` runs. Raises AdapterError(NOT_INSTALLED or CONFIG_INVALID)."""
    if "/" in command:
        found = os.path.normpath(os.path.join(cwd, command))
        if not os.path.isfile(found):
            raise AdapterError(Code.NOT_INSTALLED, f"There is no program {found}.")
        if not os.access(found, os.X_OK):
            raise AdapterError(Code.CONFIG_INVALID, f"{found} may not be run (chmod +x).")
        return found
    located = shutil.which(command, path=path)
    if located is None:
        raise AdapterError(Code.NOT_INSTALLED, f"There is no program {command} on the PATH.")
    return os.path.abspath(located)
