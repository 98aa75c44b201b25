"""What the web server serves: live streams go to native async code, everything else to Django.

A stream costs no thread, no Django middleware and no database connection of its own; see
`paperclip.streams` for them and `paperclip.bridge` for the rest.
"""

import os
import re

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "paperclip.settings")
# Sets Django up; what is imported below needs models.
_django = get_wsgi_application()

from paperclip import streams  # noqa: E402
from paperclip.bridge import Bridge, Receive, Scope, Send  # noqa: E402
from paperclip.streams import hub  # noqa: E402

_pages = Bridge(_django)
_RUN_STREAM = re.compile(r"/api/heartbeat-runs/[^/]+/stream")


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """The ASGI entry point."""
    if scope["type"] == "http":
        if is_stream(scope):
            await streams.app(scope, receive, send)
        else:
            await _pages(scope, receive, send)
    elif scope["type"] == "lifespan":
        await _lifespan(receive, send)


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


async def _lifespan(receive: Receive, send: Send) -> None:
    await receive()
    await hub.start()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await hub.stop()
    _pages.close()
    await send({"type": "lifespan.shutdown.complete"})
