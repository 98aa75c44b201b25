"""Sign-in of a command-line client without typing a key: it asks, a signed-in person approves.

The client shows an address with its secret; the person who opens it sees who asks, from where, and
says yes or no. Ten minutes, once.
"""

from __future__ import annotations

import hmac
import secrets
import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import transaction

from companies import keys
from companies.cli_login_models import CliLogin
from companies.errors import Conflict, NotFound
from companies.models import OperatorKey, User

LIFETIME = timedelta(minutes=10)
KEY_LIFETIME = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class Asked:
    """A new request, with the two tokens that only its client gets."""

    login: CliLogin
    secret: str = field(repr=False)
    token: str = field(repr=False)


def ask(*, command: str, client_name: str, address: str, now: datetime) -> Asked:
    """Note that a client wants in."""
    secret, minted = secrets.token_urlsafe(32), keys.mint(keys.OPERATOR)
    login = CliLogin.objects.create(
        digest=keys.digest(secret),
        key_lookup=minted.lookup,
        key_digest=minted.digest,
        command=command[:200],
        client_name=client_name[:120],
        address=address[:60],
        expires_at=now + LIFETIME,
        created_at=now,
    )
    return Asked(login, secret, minted.token)


def find(*, login_id: uuid.UUID, secret: str) -> CliLogin:
    """The request, for who knows its secret. Raises NotFound."""
    login = CliLogin.objects.select_related("approved_by").filter(id=login_id).first()
    if login is None or not hmac.compare_digest(login.digest, keys.digest(secret)):
        raise NotFound("There is no such request.")
    return login


def status(login: CliLogin, now: datetime) -> str:
    """pending, approved, cancelled or expired."""
    if login.status == CliLogin.Status.PENDING and login.expires_at <= now:
        return "expired"
    return login.status


@transaction.atomic
def approve(*, login: CliLogin, user: User, now: datetime) -> CliLogin:
    """Give the client a key of this person. Raises Conflict when it is too late."""
    row = _open(login, now)
    OperatorKey.objects.create(
        user=user,
        name=(row.client_name or "command line")[:120],
        lookup=row.key_lookup,
        digest=row.key_digest,
        expires_at=now + KEY_LIFETIME,
    )
    row.status, row.approved_by, row.decided_at = CliLogin.Status.APPROVED, user, now
    row.save(update_fields=["status", "approved_by", "decided_at"])
    return row


@transaction.atomic
def cancel(*, login: CliLogin, now: datetime) -> CliLogin:
    """Say no, or take the request back. Raises Conflict when it was approved."""
    row = _open(login, now)
    row.status, row.decided_at = CliLogin.Status.CANCELLED, now
    row.save(update_fields=["status", "decided_at"])
    return row


def _open(login: CliLogin, now: datetime) -> CliLogin:
    row = CliLogin.objects.select_for_update().get(pk=login.pk)
    if status(row, now) != CliLogin.Status.PENDING:
        raise Conflict("not_pending", "This request is over.", details={"status": status(row, now)})
    return row
