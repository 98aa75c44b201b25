"""Walls around an agent's program, by bubblewrap: it sees the machine read-only, writes only where
it works, and finds neither Paperclip's data nor other programs, if need be no network either.

Without bubblewrap, or where the kernel refuses it, nothing is started: never without walls.
Read next: `agents/adapters/proctree.py` for how a program behind walls is stopped.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agents.adapters.base import AdapterError, Check, Code
from agents.adapters.cli_watch import probe
from agents.adapters.program import DEFAULT_PATH, ProgramConfig

KEEPER = "bwrap"
CHECK_SECONDS = 20.0
# What steers the machine.
STEERING = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus")
# A read-only folder does not keep anybody from a socket in it: Docker's, the bus, PostgreSQL's.
MASKED = ("/tmp", "/run")  # noqa: S108 (a name inside the walls)
# What programs need of them all the same: name resolution, and the programs of NixOS.
NEEDED = (
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager/resolv.conf",
    "/run/current-system",
)
OWN = (sys.prefix, str(Path(__file__).parent))  # for the command `paperclip`
# What of a repository's own folder makes others run programs: an agent may not write it.
HINT = (
    "Install bubblewrap; in a container, allow user namespaces; or choose no isolation"
    " (docs/adapters.md, Isolation)."
)
SYSTEM = ("/proc/", "/dev/", "/sys/")
PLACES = ("runs", "agents", "worktrees")  # of the data folder
REPOSITORY_RULES = ("config", "hooks")

_hidden: tuple[str, ...] = ()


def configure(*, hidden: Sequence[str]) -> None:
    """The folders that no program behind walls may see, such as Paperclip's data."""
    global _hidden
    _hidden = tuple(os.path.realpath(path) for path in hidden)


@dataclass(frozen=True, slots=True)
class Walls:
    """What stands around one program. Folders are absolute and without links."""

    keeper: str  # bubblewrap itself
    network: bool
    writable: tuple[str, ...]
    readonly: tuple[str, ...] = ()

    def around(self, executable: str, argv: Sequence[str], *, cwd: str) -> tuple[str, list[str]]:
        """The command that runs `executable` with the arguments after `argv[0]` behind them."""
        inner = ["--chdir", os.path.realpath(cwd), "--", executable, *argv[1:]]
        return self.keeper, [KEEPER, *self._options(), *inner]

    def _options(self) -> list[str]:
        names = ("user", "pid", "ipc", "uts", "cgroup-try", *(() if self.network else ("net",)))
        line = [f"--unshare-{name}" for name in names]
        line += ["--die-with-parent", "--cap-drop", "ALL"]
        line += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        # What the machine is steered by: root inside is root to these files, and bubblewrap leaves
        # them open where their folder looks read-only.
        for path in STEERING:
            line += ["--ro-bind-try", path, path]
        hidden = [path for path in _hidden if os.path.isdir(path)]
        laid: list[tuple[str, int, tuple[str, ...]]]
        laid = [(path, 0, ("--tmpfs", path)) for path in (*MASKED, *hidden)]
        dark = tuple(f"{path}/" for path in (*MASKED, *hidden))
        own = [path for path in OWN if os.path.realpath(path).startswith(dark)]
        shown = (*NEEDED, *own, *self.readonly)
        laid += [
            (real, 1, ("--ro-bind", real, real))
            for real in map(os.path.realpath, shown)
            if os.path.exists(real)
        ]
        laid += [(path, 2, ("--bind", path, path)) for path in self.writable]
        # From the outside to the inside, so that what is inside of what is hidden is seen again.
        for _, _, option in sorted(set(laid), key=lambda one: (one[0].count("/"), *one[:2])):
            line += option
        for path in ("/run", *hidden):
            if path not in self.writable:
                line += ["--remount-ro", path]
        return line


def of(config: ProgramConfig, *, writable: Sequence[str], repository: str = "") -> Walls | None:
    """The walls that the configuration asks for. `repository` is the folder of the repository
    that the work tree belongs to: written by every commit. Raises AdapterError."""
    if config.isolation == "none":
        return None
    keeper = shutil.which(KEEPER, path=os.environ.get("PATH") or DEFAULT_PATH)
    if keeper is None:
        raise AdapterError(
            Code.ISOLATION_FAILED,
            "Bubblewrap (the program bwrap) is not on this machine, and the agent may not work"
            " without isolation.",
        )
    given = [*writable, *([repository] if repository else [])]
    folders = tuple(dict.fromkeys(os.path.realpath(path) for path in given))
    for path in folders:
        if not _may_be_written(path):
            raise AdapterError(
                Code.CONFIG_INVALID, f"An isolated agent cannot have {path} to write in."
            )
    rules = [os.path.join(repository, name) for name in REPOSITORY_RULES] if repository else []
    return Walls(keeper, config.isolation_network, folders, tuple(rules))


def _may_be_written(path: str) -> bool:
    """Of the data folder only what lies below the places of runs and agents, never those places
    themselves: there lie everybody's."""
    if path == "/" or f"{path}/".startswith(SYSTEM):
        return False
    for folder in _hidden:
        if f"{path}/".startswith(f"{folder}/"):
            place, _, own = path[len(folder) + 1 :].partition("/")
            return place in PLACES and bool(own)
    return True


async def check(walls: Walls, executable: str, *, env: Mapping[str, str], cwd: str) -> None:
    """Put the walls up once around nothing. Raises AdapterError(ISOLATION_FAILED) in the words of
    bubblewrap, or where the program lies behind them itself."""
    script = 'test -x "$0" || exit 9'
    keeper, argv = walls.around("/bin/sh", ["sh", "-c", script, executable], cwd=cwd)
    asked = await probe(keeper, argv[1:], env=env, cwd=cwd, seconds=CHECK_SECONDS)
    if asked.code == 0:
        return
    if asked.code == 9:
        said = (
            f"{executable} cannot be seen from inside: it lies in a folder that is hidden from"
            " isolated agents. Install it elsewhere, such as in /usr/local."
        )
        raise AdapterError(Code.ISOLATION_FAILED, said)
    words = asked.stderr.strip().splitlines()
    told = words[-1][:500] if words else f"it ended with {asked.code}"
    raise AdapterError(
        Code.ISOLATION_FAILED, f"This machine does not let bubblewrap isolate a program: {told}"
    )


async def explained(
    config: ProgramConfig, executable: str, *, folder: str, cwd: str, env: Mapping[str, str]
) -> Check:
    """The line of "test this configuration": `folder` stands for where a run would write."""
    try:
        walls = of(config, writable=[folder, cwd])
        assert walls is not None
        await check(walls, executable, env=env, cwd=cwd)
    except AdapterError as error:
        return Check("Isolation", False, error.message, HINT)
    network = "the network is open" if walls.network else "without a network"
    return Check("Isolation", True, f"Bubblewrap isolates it; {network}.")
