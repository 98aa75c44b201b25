"""Who watches, and may they (still)? Django's side of a stream, on a few threads of its own.

A stream asks once at its start and then once a minute; in between it holds neither thread nor
connection. A POST that starts a task goes through Django as a whole, with its middleware, CSRF
check and idempotency, before the answer turns into a stream.
"""

from __future__ import annotations

import asyncio
import io
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.conf import settings
from django.contrib.auth import get_user
from django.core.wsgi import get_wsgi_application
from django.db import Error, close_old_connections, connections
from django.http import HttpRequest, parse_cookie

from agents import auth
from agents.models import HeartbeatRun
from companies import access, keys, wire
from companies.errors import Refusal
from companies.sessions import SessionStore
from paperclip import bridge, callers

R = TypeVar("R")
THREADS = 4


class Threads:
    """The threads that Django's ORM runs on; their connections end with them."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="viewer")

    async def run(self, work: Callable[[], R]) -> R:
        def tidy() -> R:
            close_old_connections()
            try:
                return work()
            finally:
                close_old_connections()

        return await asyncio.get_running_loop().run_in_executor(self._pool, tidy)

    async def close(self) -> None:
        # Each thread holds a connection of its own; the barrier makes sure that each is met.
        together = threading.Barrier(THREADS)

        def leave() -> None:
            together.wait(10)
            connections.close_all()

        loop = asyncio.get_running_loop()
        await asyncio.gather(
            *(loop.run_in_executor(self._pool, leave) for _ in range(THREADS)),
            return_exceptions=True,
        )
        self._pool.shutdown(wait=True)


@dataclass(frozen=True, slots=True)
class Proof:
    """What a request carries to show who asks."""

    authorization: str | None = field(repr=False)
    session_key: str | None = field(repr=False)

    @classmethod
    def of(cls, scope: bridge.Scope) -> Proof:
        authorization, cookies = None, []
        for name, value in scope["headers"]:
            if name == b"authorization":
                authorization = value.decode("latin-1")
            elif name == b"cookie":
                cookies.append(value.decode("latin-1"))
        # As Django reads them: no cookie of another program on this host hides ours.
        jar = parse_cookie("; ".join(cookies))
        return cls(authorization, jar.get(settings.SESSION_COOKIE_NAME))


def token_of_agent(scope: bridge.Scope) -> str | None:
    """The token that an agent or a run claims to be; None for people. Proves nothing."""
    token = callers.bearer(Proof.of(scope).authorization) or ""
    return token if token.startswith((f"{keys.AGENT}_", f"{keys.RUN}_")) else None


class _Shown(SessionStore):
    """A session that is looked at only."""

    key_salt = SessionStore().key_salt  # made from the name of a class

    def cycle_key(self) -> None:
        """Leaves that to a page: this answer cannot tell the browser of another key."""


def identify(proof: Proof) -> access.Principal | None:
    """The caller that a proof stands for, by the rules of `callers`."""
    if proof.authorization is not None:
        token = callers.bearer(proof.authorization)
        return auth.principal_for_token(token) if token else None
    if not proof.session_key:
        return None
    request = HttpRequest()
    request.session = _Shown(proof.session_key)
    user = get_user(request)
    return access.for_user(user) if user.is_authenticated else None


class Denied(Exception):
    """The stream is refused, or over; carries the JSON error."""

    def __init__(self, status: int, code: str, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field
        self.status = status
        self.code = code


def _checked(look: Callable[[access.Principal], R], proof: Proof) -> R:
    try:
        principal = identify(proof)
        if principal is None:
            raise Denied(401, "unauthenticated", "A valid credential is needed.")
        callers.count(principal)
        return look(principal)
    except Refusal as refusal:
        raise Denied(refusal.status, refusal.code, refusal.message) from None
    except Error as error:
        raise Denied(503, "database_away", "The database does not answer; try again.") from error


def may_watch_run(proof: Proof, ref: str) -> uuid.UUID:
    """The run's id, when this caller may see it. Raises Denied."""

    def look(principal: access.Principal) -> uuid.UUID:
        run_id = wire.parse_id(ref, "runId")
        rows = wire.in_companies(principal, HeartbeatRun.objects.all())
        if not rows.filter(id=run_id).exists():
            raise Denied(404, "not_found", "There is no such run.")
        return run_id

    return _checked(look, proof)


def may_watch_company(proof: Proof, ref: str) -> str:
    """The company's id, when this caller may see it. Raises Denied."""
    return _checked(lambda principal: str(access.company(principal, ref[:60]).id), proof)


_django: Any = None


def ask_django(scope: bridge.Scope, body: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Django's own answer to this request: status, headers and body."""
    global _django
    if _django is None:
        _django = get_wsgi_application()
    answer: dict[str, Any] = {}

    def start(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> None:
        answer["status"] = int(status.split(" ", 1)[0])
        answer["headers"] = [
            (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers
        ]

    chunks = _django(bridge.make_environ(scope, io.BytesIO(body), len(body)), start)
    try:
        content = b"".join(chunks)
    finally:
        if hasattr(chunks, "close"):
            chunks.close()
    return answer["status"], answer["headers"], content
