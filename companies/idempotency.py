"""A POST that may be sent twice: the second time it gets the first one's answer.

The answer is stored in the transaction of the change itself, so neither exists without the other,
whatever dies in between. An answer that is a refusal is not kept: it changed nothing, and the next
try may find a better world.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse

from companies import keyring, keys
from companies.errors import Conflict, Invalid, Refusal
from companies.models import IdempotencyRecord

MAX_KEY = 200
SEALED = b"\0"  # no JSON begins with it


def carry_out(
    request: HttpRequest, *, principal: str, operation: Callable[[], HttpResponse]
) -> HttpResponse:
    """Run `operation` once for each Idempotency-Key of this principal and route.

    Same key, same body: the stored answer again, with `Idempotent-Replayed: true`. Raises Refusal
    422 for another body and Conflict 409 (with `retryAfter` in its details) while the first one
    is still running.
    """
    key = request.META.get("HTTP_IDEMPOTENCY_KEY")
    if key is None:
        return operation()
    key = key.strip()
    if not key or len(key) > MAX_KEY or not key.isprintable():
        raise Invalid("invalid_idempotency_key", f"An Idempotency-Key has 1 to {MAX_KEY} letters.")
    route = request.path[:300]
    fingerprint = _fingerprint(request)
    with transaction.atomic():
        _lock(f"{principal}\0{route}\0{key}")
        known = IdempotencyRecord.objects.filter(principal=principal, route=route, key=key).first()
        if known is not None:
            return _replay(known, fingerprint)
        response = operation()
        if response.status_code < 300:
            IdempotencyRecord.objects.create(
                principal=principal,
                route=route,
                key=key,
                fingerprint=fingerprint,
                status_code=response.status_code,
                body=_kept(response.content, fingerprint),
            )
        return response


def stored(request: HttpRequest, *, principal: str) -> HttpResponse | None:
    """The answer that this POST got before, for who cannot get a new one any more. Raises Refusal
    422 for another body."""
    key = request.headers.get("Idempotency-Key", "").strip()
    if request.method != "POST" or not key or "\0" in key:
        return None
    route = request.path[:300]
    known = IdempotencyRecord.objects.filter(principal=principal, route=route, key=key).first()
    return None if known is None else _replay(known, _fingerprint(request))


def _fingerprint(request: HttpRequest) -> str:
    said = request.get_full_path().encode() + b"\0" + request.body
    return hashlib.sha256(said).hexdigest()


def _lock(name: str) -> None:
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
    with connection.cursor() as cursor:
        # Ends with the transaction: a crash leaves nothing that is "still running" for ever.
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [number])
        (mine,) = cursor.fetchone()
    if not mine:
        raise Conflict(
            "idempotency_in_progress",
            "A request with this key is still running.",
            details={"retryAfter": 1},
        )


def _replay(known: IdempotencyRecord, fingerprint: str) -> HttpResponse:
    if known.fingerprint != fingerprint:
        raise Refusal(
            "idempotency_key_reused", "This Idempotency-Key was used for another request."
        )
    body = bytes(known.body or b"")
    if body.startswith(SEALED):
        body = _opened(body, fingerprint)
    response = HttpResponse(body, content_type="application/json", status=known.status_code)
    response["Idempotent-Replayed"] = "true"
    return response


def _kept(body: bytes, fingerprint: str) -> bytes:
    """The answer as it is stored: one that shows a new key is sealed."""
    if not keys.inside(body):
        return body
    return SEALED + keyring.seal(body, fingerprint.encode())


def _opened(body: bytes, fingerprint: str) -> bytes:
    try:
        return keyring.unseal(body.removeprefix(SEALED), fingerprint.encode())
    except keyring.CannotOpen:
        raise Conflict(
            "idempotency_answer_lost",
            "This was done, but its answer was sealed with a SECRET_KEY that is gone.",
        ) from None
