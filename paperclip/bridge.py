"""Django's WSGI handler inside an ASGI server.

Ordinary requests run on a few long-lived threads, each with its own database connection: several
times cheaper than Django's ASGI path, where every request pays for thread hops and a connection.
Live streams never come here; `paperclip.asgi` sends them elsewhere.
"""

import asyncio
import contextlib
import functools
import io
import json
import logging
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from typing import IO, Any, Protocol, cast

from django.db import close_old_connections

from paperclip.environ import Environ, Scope, make_environ
from paperclip.request_threads import Threads

__all__ = ["BODY_LIMIT_BYTES", "Bridge", "Message", "Receive", "Scope", "Send", "make_environ"]

logger = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

BODY_LIMIT_BYTES = 10 * 1024 * 1024
_BODY_SECONDS = 60
_IN_MEMORY_BYTES = 64 * 1024
# A body up to this size is small: thousands of them may be on their way at a time.
_SMALL_BODY_BYTES = 256 * 1024
# A body up to this size leaves the thread in one piece; of a larger one, the reader sets the pace.
_WHOLE_BYTES = 256 * 1024
_PIECE_SECONDS = 30
_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "upgrade", "trailer"}


class _Closable(Protocol):
    def close(self) -> None: ...


class _Refused(Exception):
    """The request is answered here, without Django."""

    def __init__(self, status: int, code: str, sentence: str, *headers: tuple[bytes, bytes]):
        super().__init__(sentence)
        self.status = status
        self.headers = headers
        self.body = json.dumps({"error": sentence, "code": code, "details": {}}).encode()


class _Gone(Exception):
    """The reader has left."""


class _Room:
    """Places for so many requests at a time; entering a full one raises _Refused."""

    def __init__(self, places: int) -> None:
        self._places = places
        self.taken = 0

    def check(self) -> None:
        if self.taken >= self._places:
            raise _Refused(
                503, "overloaded", "Too many requests wait; try again.", (b"retry-after", b"1")
            )

    def __enter__(self) -> None:
        self.check()
        self.taken += 1

    def __exit__(self, *_: object) -> None:
        self.taken -= 1


class _Answer:
    """What a WSGI application says through `start_response`."""

    status = 500
    headers: list[tuple[bytes, bytes]]

    def start(
        self, status: str, headers: list[tuple[str, str]], exc_info: object = None
    ) -> Callable[[bytes], object]:
        self.status = int(status[:3])
        self.headers = [
            (sent, value.strip().encode("latin-1"))
            for name, value in headers
            if (sent := _sent_name(name)) is not None
        ]
        return self._write

    def _write(self, _: bytes) -> object:
        raise RuntimeError("The write callable of old WSGI applications is not served.")


@functools.lru_cache(maxsize=256)
def _sent_name(name: str) -> bytes | None:
    """A header's name as it goes out; None for what is between two neighbours only."""
    name = name.lower()
    return None if name in _HOP_BY_HOP else name.encode("latin-1")


class Bridge:
    """An ASGI application that answers with a WSGI one.

    `threads` requests run at a time and `waiting` more stand in line; whoever comes then hears
    503 with Retry-After. A body over `BODY_LIMIT_BYTES` is 413. A request stands in line when its
    body is whole: who sends slowly keeps no place from others.
    """

    def __init__(
        self,
        application: Callable[..., Iterable[bytes]],
        *,
        threads: int = 4,
        waiting: int = 256,
        arriving: int = 4096,
        arriving_large: int = 64,
    ) -> None:
        self._application = application
        self._threads = threads
        self._inside = _Room(threads + waiting)
        self._arriving = _Room(arriving)
        # Of bodies that may become large, fewer: each may lay 10 MB down in the temporary folder.
        self._arriving_large = _Room(arriving_large)
        self._pool = Threads(threads)

    @property
    def load(self) -> tuple[int, int]:
        """How many requests are on the threads, and how many wait or are still arriving."""
        inside = self._inside.taken
        running = min(inside, self._threads)
        arriving = self._arriving.taken + self._arriving_large.taken
        return running, inside - running + arriving

    def close(self) -> None:
        """Lets the running requests finish and ends the threads."""
        self._pool.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._inside.check()
            if _has_none(scope):
                body, length = cast(IO[bytes], io.BytesIO()), 0
            else:
                with self._arriving_large if _may_be_large(scope) else self._arriving:
                    body, length = await _read_body(scope, receive)
            with body, self._inside:
                await self._respond(make_environ(scope, body, length), send)
        except _Gone:
            return
        except _Refused as refused:
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(refused.body)).encode()),
                *refused.headers,
            ]
            with contextlib.suppress(Exception):
                await _send_whole(
                    send, refused.status, headers, b"" if _is_head(scope) else refused.body
                )

    async def _respond(self, environ: Environ, send: Send) -> None:
        loop = asyncio.get_running_loop()
        head_only = environ["REQUEST_METHOD"] == "HEAD"
        left = False

        async def deliver(message: Message) -> None:
            nonlocal left
            if left:
                raise _Gone
            try:
                await send(message)
            except Exception:
                left = True
                raise _Gone from None

        def push(message: Message) -> None:
            """Hands a piece over from the thread and waits until the reader has taken it."""
            future = asyncio.run_coroutine_threadsafe(deliver(message), loop)
            try:
                future.result(_PIECE_SECONDS)
            except TimeoutError:
                future.cancel()
                raise _Gone from None

        work = self._pool.run(lambda: self._run(environ, head_only, push))
        try:
            # Shielded: the thread goes on when the reader leaves, so its place is held until then.
            answer, rest = await asyncio.shield(work)
        except asyncio.CancelledError:
            left = True
            with contextlib.suppress(Exception):
                await work
            raise
        if rest is not None:
            with contextlib.suppress(_Gone):
                await deliver(
                    {
                        "type": "http.response.start",
                        "status": answer.status,
                        "headers": answer.headers,
                    }
                )
                await deliver({"type": "http.response.body", "body": rest})

    def _run(
        self, environ: Environ, head_only: bool, push: Callable[[Message], None]
    ) -> tuple[_Answer, bytes | None]:
        """Runs the application on a thread.

        Returns its answer with the whole body, or with None when the body was pushed already.
        """
        answer = _Answer()
        chunks: Iterable[bytes] | None = None
        try:
            try:
                chunks = self._application(environ, answer.start)
                whole, rest = _take(chunks)
            except Exception:
                # Django answers its own errors; this is one of the beginning of a streamed body.
                logger.exception("A request ended in an error")
                raise _Refused(500, "internal_error", "Something went wrong here.") from None
            if rest is None:
                return answer, b"" if head_only else whole
            push(
                {"type": "http.response.start", "status": answer.status, "headers": answer.headers}
            )
            if not head_only:
                push({"type": "http.response.body", "body": whole, "more_body": True})
                for piece in rest:
                    push({"type": "http.response.body", "body": piece, "more_body": True})
            push({"type": "http.response.body", "body": b""})
            return answer, None
        finally:
            try:
                if chunks is None:
                    # Django's own clean-up hangs on the end of a response that never came.
                    close_old_connections()
                elif hasattr(chunks, "close"):
                    cast(_Closable, chunks).close()
            except Exception:
                logger.exception("A response could not be closed")


def _take(chunks: Iterable[bytes]) -> tuple[bytes, Iterator[bytes] | None]:
    """Splits a body into its beginning and an iterator over the rest; None when that was all."""
    gathered: list[bytes] = []
    size = 0
    source = iter(chunks)
    for chunk in source:
        gathered.append(chunk)
        size += len(chunk)
        if size > _WHOLE_BYTES:
            return b"".join(gathered), _pieces(source)
    return b"".join(gathered), None


def _pieces(source: Iterator[bytes]) -> Iterator[bytes]:
    """Yields larger pieces: files come in 4 kB steps, and each hand-over costs a thread hop."""
    piece = bytearray()
    for chunk in source:
        piece += chunk
        if len(piece) >= _WHOLE_BYTES:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def _may_be_large(scope: Scope) -> bool:
    """Tells whether a body is announced as large, or comes without a length."""
    for name, value in scope["headers"]:
        if name == b"transfer-encoding":
            return True
        if name == b"content-length" and value.isdigit():
            return int(value[:20]) > _SMALL_BODY_BYTES
    return False


def _has_none(scope: Scope) -> bool:
    """Tells whether a request is of those that bring no body: it need not be waited for."""
    if scope["method"] not in _WITHOUT_BODY:
        return False
    return all(
        name not in (b"content-length", b"transfer-encoding") or value == b"0"
        for name, value in scope["headers"]
    )


async def _read_body(scope: Scope, receive: Receive) -> tuple[IO[bytes], int]:
    """Returns the request's body, to be closed by the caller, and its length in bytes."""
    announced = -1
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            announced = int(value[:20])
            if announced > BODY_LIMIT_BYTES:
                raise _too_large()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            chunk, more = await _next(receive)
            # What was announced is all there is: the server's word for it, which comes as a message
            # of its own, need not be waited for.
            whole = not more or len(chunk) == announced
            if whole and len(chunk) <= _IN_MEMORY_BYTES:
                return io.BytesIO(chunk), len(chunk)
            return await _gather(chunk, more, receive)
    except TimeoutError:
        raise _Refused(
            408, "body_too_slow", "The body did not arrive in time.", (b"connection", b"close")
        ) from None


async def _gather(chunk: bytes, more: bool, receive: Receive) -> tuple[IO[bytes], int]:
    """A body that comes in parts, on the disk when it is large."""
    body = cast(IO[bytes], tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES))  # noqa: SIM115
    try:
        length = 0
        while True:
            length += len(chunk)
            if length > BODY_LIMIT_BYTES:
                raise _too_large()
            body.write(chunk)
            if not more:
                body.seek(0)
                return body, length
            chunk, more = await _next(receive)
    except BaseException:
        body.close()
        raise


async def _next(receive: Receive) -> tuple[bytes, bool]:
    """The next part of a body, and whether more follow."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise _Gone
    return message.get("body", b""), message.get("more_body", False)


def _too_large() -> _Refused:
    return _Refused(
        413, "body_too_large", "The body is larger than 10 MB.", (b"connection", b"close")
    )


def _is_head(scope: Scope) -> bool:
    return bool(scope["method"] == "HEAD")


async def _send_whole(
    send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
