"""What the web server serves: live streams go to native async code, everything else to Django.

A stream costs no thread, no Django middleware and no database connection of its own; see
`paperclip.streams` for them and `paperclip.bridge` for the rest.
"""

import asyncio
import contextlib
import logging
import os
import re
import signal
from collections.abc import Awaitable, Callable

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from granian.utils.proxies import wrap_asgi_with_proxy_headers

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "paperclip.settings")
# Sets Django up; what is imported below needs models.
_django = get_wsgi_application()

from agents import meters  # noqa: E402
from paperclip import garbage, streams  # noqa: E402
from paperclip.bridge import Bridge, Receive, Scope, Send  # noqa: E402
from paperclip.engine import schedule  # noqa: E402
from paperclip.streams import hub  # noqa: E402

# Sent to a worker of the web server before it is asked to stop: it waits for its connections, and
# a page that is left open would never let go of its stream.
END_STREAMS = signal.SIGUSR1

LOADED_SECONDS = 20.0  # then the first requests have loaded what all others use

log = logging.getLogger(__name__)

Application = Callable[[Scope, Receive, Send], Awaitable[None]]
_pages = Bridge(_django)
_RUN_STREAM = re.compile(r"/api/heartbeat-runs/[^/]+/stream")


class _Streams:
    """The streams that are open in this process, so that they can be ended."""

    def __init__(self) -> None:
        self._open: set[asyncio.Task[None]] = set()
        self._ending = False

    def end(self) -> None:
        """Ends all streams; readers come back to whoever serves next."""
        self._ending = True
        for task in self._open:
            task.cancel()

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.ensure_future(streams.app(scope, receive, send))
        self._open.add(task)
        if self._ending:
            task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            if not self._ending:
                task.cancel()
                raise
            # An end in good order, when the answer has begun; before that the connection is cut.
            with contextlib.suppress(Exception):
                await send({"type": "http.response.body", "body": b""})
        finally:
            self._open.discard(task)


_streams = _Streams()


async def serve(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers one request, or goes through the server's life with it."""
    if scope["type"] == "http":
        if is_stream(scope):
            await _streams.serve(scope, receive, send)
        else:
            await _pages(scope, receive, send)
    elif scope["type"] == "lifespan":
        await _lifespan(receive, send)


def behind(proxies: list[str], app: Application) -> Application:
    """`app`, seeing callers as the trusted `proxies` (addresses, networks) tell of them."""
    wrapped: Application = wrap_asgi_with_proxy_headers(app, trusted_hosts=proxies)
    return wrapped if proxies else app


# The ASGI entry point.
application = behind(settings.TRUSTED_PROXIES, serve)


def is_stream(scope: Scope) -> bool:
    """Tells whether a request asks for a live stream."""
    method, path = scope["method"], scope["path"]
    if method == "GET":
        return path == "/events" or _RUN_STREAM.fullmatch(path) is not None
    return method == "POST" and path == "/api/agent-tasks" and _accepts_events(scope)


def _accepts_events(scope: Scope) -> bool:
    return any(
        name == b"accept" and b"text/event-stream" in value.lower()
        for name, value in scope["headers"]
    )


def _facts() -> dict[str, float]:
    """What this process says of itself to who watches."""
    running, waiting = _pages.load
    facts: dict[str, float] = {"requests_running": running, "requests_waiting": waiting}
    with contextlib.suppress(hub.Unavailable):
        facts |= hub.current().facts()
    return facts


async def _lifespan(receive: Receive, send: Send) -> None:
    await receive()
    # Not every server gives us the main thread and a loop that can listen to signals.
    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
        asyncio.get_running_loop().add_signal_handler(END_STREAMS, _streams.end)
    try:
        await hub.start()
    except Exception:
        # Without its streams a server would look well and show nothing; the parent starts another.
        log.exception("the streams cannot start")
        await send({"type": "lifespan.startup.failed"})
        return
    meters.report(instance=schedule.instance(), kind="web", source=_facts)
    asyncio.get_running_loop().call_later(LOADED_SECONDS, garbage.keep_what_is_there)
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await hub.stop()
    _pages.close()
    await asyncio.to_thread(meters.close)
    await send({"type": "lifespan.shutdown.complete"})
