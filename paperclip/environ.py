"""The WSGI environment of an ASGI request, for `bridge.py`."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, MutableMapping
from typing import IO, Any
from urllib.parse import unquote_to_bytes

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Environ = dict[str, Any]


def make_environ(scope: Scope, body: IO[bytes], length: int) -> Environ:
    """Returns the WSGI environment (PEP 3333) of an ASGI request whose body has been read."""
    raw_path = scope.get("raw_path")
    path = unquote_to_bytes(raw_path.split(b"?", 1)[0]) if raw_path else scope["path"].encode()
    server = scope.get("server") or ("localhost", 80)
    client = scope.get("client") or ("", 0)
    environ: Environ = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": scope.get("root_path", ""),
        "PATH_INFO": path.decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "SERVER_NAME": str(server[0]),
        "SERVER_PORT": str(server[1] or 80),
        "REMOTE_ADDR": str(client[0]),
        "REMOTE_PORT": str(client[1]),
        "CONTENT_LENGTH": str(length),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.get("scheme", "http"),
        "wsgi.input": body,
        "wsgi.errors": _Errors(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    for name, raw_value in scope["headers"]:
        key = _environ_name(name)
        if key:
            value = raw_value.decode("latin-1")
            if key in environ and key != "CONTENT_TYPE":
                value = f"{environ[key]}{'; ' if name == b'cookie' else ','}{value}"
            environ[key] = value
    return environ


@functools.lru_cache(maxsize=1024)
def _environ_name(header: bytes) -> str:
    """The key of a header in the environment; empty for what has no place there."""
    name = header.decode("latin-1")
    if name == "content-type":
        return "CONTENT_TYPE"
    # A name with an underscore would pass for one with a hyphen, and Proxy for a setting.
    if name in ("content-length", "transfer-encoding", "proxy") or "_" in name:
        return ""
    return "HTTP_" + name.upper().replace("-", "_")


class _Errors:
    """`wsgi.errors`, by way of the log."""

    def write(self, text: str) -> int:
        if text.strip():
            logger.error(text.rstrip())
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None: ...
