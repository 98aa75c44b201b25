"""One child process: its output as it comes, and its pipes, which are closed once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from agents.adapters.child import Child

LOOPS = [uvloop.new_event_loop, asyncio.new_event_loop]


def run(loop: Callable[[], asyncio.AbstractEventLoop], main: Any) -> Any:
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(main)


def shell(script: str) -> Child:
    return Child(
        executable="/bin/sh",
        argv=["sh", "-c", script],
        cwd="/",
        env={"PATH": os.environ["PATH"]},
        stdin=b"",
        limits={},
    )


class Watched:
    """The end of a pipe that tells whether it was still open when it was closed."""

    def __init__(self, file: Any, told: list[bool]) -> None:
        self._file, self._told = file, told

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def close(self) -> None:
        try:
            os.fstat(self._file.fileno())
        except OSError:
            self._told.append(False)
        else:
            self._told.append(True)
        self._file.close()


@pytest.mark.parametrize("loop", LOOPS)
def test_its_pipes_are_closed_once(loop: Any) -> None:
    """Twice, and the second time the number is somebody else's."""
    told: list[bool] = []

    async def main() -> None:
        child = shell("echo hello; echo no >&2")
        child._popen.stdout = Watched(child._popen.stdout, told)  # type: ignore[assignment]
        child._popen.stderr = Watched(child._popen.stderr, told)  # type: ignore[assignment]
        await child.listen()
        await child.wait(seconds=10)
        await asyncio.sleep(0.02)
        child.close()
        await asyncio.sleep(0.02)

    run(loop, main())
    assert told == [True, True]


@pytest.mark.parametrize("loop", LOOPS)
def test_everything_it_says_arrives_in_order_on_its_channel(loop: Any) -> None:
    lines = "for i in $(seq 3000); do echo line $i; done"
    script = f"{lines}; printf 'b\\303'; sleep 0.1; printf '\\274'"

    async def main() -> str:
        child = shell(f"{script}; echo wrong >&2")
        await child.listen()
        try:
            said = {"stdout": "", "stderr": ""}
            ended = 0
            while ended < 2:  # each channel ends with an empty piece
                piece = await child.next(seconds=10)
                assert piece is not None
                channel, text = piece
                said[channel] += text
                ended += not text
            assert await child.wait(seconds=5) == 0
            assert child.output_ended
            assert said["stderr"] == "wrong\n"
            return said["stdout"]
        finally:
            child.close()

    said = run(loop, main())
    assert said == "".join(f"line {n}\n" for n in range(1, 3001)) + "bü"


@pytest.mark.parametrize("loop", LOOPS)
def test_who_is_not_listened_to_any_more_is_let_go(loop: Any) -> None:
    """A child that still holds the other end keeps nobody."""

    async def main() -> None:
        child = shell("echo begun; sleep 30")
        await child.listen()
        assert await child.next(seconds=10) == ("stdout", "begun\n")
        child.close()
        await asyncio.sleep(0.01)
        assert child.output_ended
        os.killpg(child.pid, 9)
        assert await child.wait(seconds=10) == -9

    run(loop, main())
