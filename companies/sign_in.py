"""One-time sign-in links: how the first operator gets in, and how one who is locked out does."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta

from django.db import transaction

from companies.models import Membership, SignInLink, User

LIFETIME = timedelta(hours=24)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def make_link(*, user: User, now: datetime, lifetime: timedelta = LIFETIME) -> str:
    """A new token for `/sign-in/<token>`; only its hash is kept."""
    token = secrets.token_urlsafe(32)
    SignInLink.objects.create(digest=_digest(token), user=user, expires_at=now + lifetime)
    return token


def link_for_inviter(*, membership: Membership, now: datetime) -> str | None:
    """A token that whoever invited a person may hand on to them, or None.

    Only while the account is nobody's yet: never signed in, staff of nothing, member of no other
    company. Everybody may found a company and invite whom they like; a link to an account in use
    would let them in as somebody else.
    """
    user = membership.user
    in_use = user.last_login is not None or user.has_usable_password()
    elsewhere = user.memberships.exclude(id=membership.pk).exists()
    if in_use or elsewhere or user.is_staff or user.is_superuser:
        return None
    return make_link(user=user, now=now)


@transaction.atomic
def redeem(*, token: str, now: datetime) -> User | None:
    """The user whose link this is, once and in time; None otherwise."""
    link = (
        SignInLink.objects.select_for_update(of=("self",))
        .select_related("user")
        .filter(digest=_digest(token), used_at=None, expires_at__gt=now, user__is_active=True)
        .first()
    )
    if link is None:
        return None
    link.used_at = now
    link.save(update_fields=["used_at"])
    return link.user


def sweep(*, now: datetime) -> int:
    """Forget links that are over; returns how many."""
    return SignInLink.objects.filter(expires_at__lt=now - LIFETIME).delete()[0]
