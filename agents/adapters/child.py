"""One child process, its output as it comes and its end.

Not for what the output means (`process.py`) nor for finding stray descendants (`proctree.py`).
"""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Literal

from agents.adapters.output_pipe import OutputPipe
from agents.adapters.proctree import POLL_SECONDS

LAUNCHER = Path(__file__).with_name("launch.py")
CHUNK_BYTES = 64 * 1024
QUEUED_CHUNKS = 64

Channel = Literal["stdout", "stderr"]


class Child:
    """A started program. Always call `close` in the end."""

    def __init__(
        self,
        *,
        executable: str,
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        stdin: bytes,
        limits: Mapping[str, int],
    ) -> None:
        """Start it. Raises OSError."""
        self._stdin = _unnamed_file(stdin)
        self._popen = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", str(LAUNCHER)),
                *(str(os.getpid()), json.dumps(limits)),
                *(executable, *argv),
            ],
            cwd=cwd,
            env=dict(env),
            stdin=self._stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            umask=0o077,
        )
        self.pid = self._popen.pid
        self.bytes_out = 0
        self._queue: asyncio.Queue[tuple[Channel, str]] = asyncio.Queue(QUEUED_CHUNKS)
        self._discard = False
        self._pipes: list[OutputPipe] = []
        self._readers: list[asyncio.Task[None]] = []

    async def listen(self) -> None:
        """Begin to read its output."""
        assert self._popen.stdout is not None
        assert self._popen.stderr is not None
        self._pipes = [OutputPipe(self._popen.stdout), OutputPipe(self._popen.stderr)]
        self._readers = [
            asyncio.create_task(self._pump(self._pipes[0], "stdout")),
            asyncio.create_task(self._pump(self._pipes[1], "stderr")),
        ]

    async def _pump(self, pipe: OutputPipe, channel: Channel) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while chunk := await pipe.read(CHUNK_BYTES):
            self.bytes_out += len(chunk)
            text = decoder.decode(chunk)
            if text and not self._discard:
                await self._queue.put((channel, text))
        # Sent even when empty: the end of the output wakes whoever waits for more of it.
        await self._queue.put((channel, decoder.decode(b"", final=True)))

    async def next(self, *, seconds: float) -> tuple[Channel, str] | None:
        """The next piece of output, "" at its end; None when none came in `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                return await self._queue.get()
        except TimeoutError:
            return None

    def waiting(self) -> tuple[Channel, str] | None:
        """A piece of output that is already here."""
        return None if self._queue.empty() else self._queue.get_nowait()

    @property
    def output_ended(self) -> bool:
        return all(task.done() for task in self._readers)

    @property
    def returncode(self) -> int | None:
        return self._popen.poll()

    async def wait(self, *, seconds: float) -> int | None:
        """Its exit code, None when it still runs after `seconds`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while self.returncode is None and loop.time() < deadline:  # noqa: ASYNC110 (no event)
            await asyncio.sleep(POLL_SECONDS)
        return self.returncode

    def discard(self) -> None:
        """Nobody listens any more: let it write into the void instead of blocking."""
        self._discard = True
        while not self._queue.empty():
            self._queue.get_nowait()

    def close(self) -> None:
        """Let go of its pipes; whoever still holds the other end no longer matters."""
        for task in self._readers:
            task.cancel()
        for pipe in self._pipes:
            pipe.close()
        self._stdin.close()
        self._popen.poll()


def _unnamed_file(content: bytes) -> IO[bytes]:
    """Standard input as a file: no pipe that fills up when the program does not read."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the child)
    file.write(content)
    file.seek(0)
    return file
