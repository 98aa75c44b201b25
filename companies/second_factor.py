"""The second factor at sign-in: codes of an authenticator app (TOTP, RFC 6238) and, for the day on
which it is lost, recovery codes.

    begin (a key is made) -> confirm (its first code; recovery codes are shown) -> verify, verify, …

Optional, a person's own choice. Asked after the password or the one-time link, never of API keys.
"""

from __future__ import annotations

import base64
import logging
import re
import secrets as random
import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pyotp
from django.db import transaction

from companies import activity, keyring, keys, throttle
from companies.activity import Actor
from companies.errors import Conflict, Invalid
from companies.models import RecoveryCode, SecondFactor, User

ISSUER = "Paperclip"
STEP_SECONDS = 30
DRIFT = 1  # steps that a clock may be off, to either side
ENROLMENT = timedelta(hours=1)  # for the first code, after which the key is forgotten
RECOVERY_CODES = 10
RECOVERY_BYTES = 10  # 80 bits: beyond guessing, so that a plain hash keeps them
# Attempts of one person in so many seconds, right ones and wrong ones, over all instances.
LIMITS = ((10, 900), (50, 86_400))

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Enrolment:
    """What an authenticator app has to be told, for as long as no code has confirmed it."""

    key: str = field(repr=False)  # base32
    uri: str = field(repr=False)  # otpauth://


def context(user_id: uuid.UUID) -> bytes:
    """What a person's key is bound to."""
    return f"second factor|{user_id}".encode()


def of(user: User) -> SecondFactor | None:
    """The factor that is asked for at sign-in; None when the person has none."""
    return SecondFactor.objects.filter(user_id=user.pk, confirmed_at__isnull=False).first()


def attempt(*, user_id: uuid.UUID, now: datetime) -> None:
    """Count an attempt at a person's code or password. Raises RateLimited past `LIMITS`."""
    for limit, seconds in LIMITS:
        key = f"second-factor:{seconds}:{user_id}"
        throttle.hit(key, limit=limit, window_seconds=seconds, now=now)


def proves(*, user: User, word: str, now: datetime) -> bool:
    """Is it really this person? The password says so; a code, where there is no password."""
    if user.has_usable_password():
        return user.check_password(word)
    return of(user) is None or verify(user=user, code=word, now=now)


# --- set-up --------------------------------------------------------------------------------------


@transaction.atomic
def begin(*, user: User, now: datetime) -> None:
    """Make a new key, which replaces one that was never confirmed. Raises Conflict when the person
    has a factor."""
    _take_turns(user)
    if of(user) is not None:
        raise Conflict("second_factor_on", "You have a second factor; remove it first.")
    SecondFactor.objects.filter(user_id=user.pk).delete()
    sealed = keyring.seal(pyotp.random_base32().encode(), context(user.pk))
    SecondFactor.objects.create(user=user, sealed=sealed, created_at=now)


def enrolment(*, user: User, now: datetime) -> Enrolment | None:
    """The key that waits for its first code, if there is one."""
    factor = SecondFactor.objects.filter(user_id=user.pk, confirmed_at=None).first()
    if factor is None or factor.created_at + ENROLMENT <= now:
        return None
    try:
        totp = _totp(factor)
    except keyring.CannotOpen:
        return None
    return Enrolment(totp.secret, totp.provisioning_uri(name=user.email, issuer_name=ISSUER))


@transaction.atomic
def confirm(*, user: User, code: str, now: datetime) -> list[str]:
    """Take the first code: from here on one is asked for. Returns the recovery codes, which are
    nowhere else. Raises Conflict when nothing waits, Invalid for a wrong code."""
    _take_turns(user)
    factor = SecondFactor.objects.select_for_update().filter(user_id=user.pk).first()
    if factor is None or factor.confirmed_at or enrolment(user=user, now=now) is None:
        raise Conflict("no_enrolment", "This set-up is over; begin again.")
    word = _plain(code)
    if not (_is_of_app(word) and _take_step(factor, word, now)):
        raise Invalid("wrong_code", "This is not the code of this moment.", field="code")
    factor.confirmed_at = now
    factor.save(update_fields=["confirmed_at"])
    made = _new_codes(factor, now)
    _note("member.second_factor_added", user, _himself(user), now)
    return made


# --- sign-in -------------------------------------------------------------------------------------


@transaction.atomic
def verify(*, user: User, code: str, now: datetime) -> bool:
    """Does this code, of the app or for recovery, let the person in? Each does once."""
    factor = (
        SecondFactor.objects.select_for_update()
        .filter(user_id=user.pk, confirmed_at__isnull=False)
        .first()
    )
    if factor is None:
        return False
    word = _plain(code)
    if _is_of_app(word):
        return _take_step(factor, word, now)
    used = factor.codes.filter(digest=keys.digest(word), used_at=None).update(used_at=now)
    if used:
        details = {"left": left(factor)}
        _note("member.recovery_code_used", user, _himself(user), now, details)
    return bool(used)


# --- afterwards ----------------------------------------------------------------------------------


def left(factor: SecondFactor) -> int:
    """How many recovery codes are unused."""
    return factor.codes.filter(used_at=None).count()


@transaction.atomic
def renew_codes(*, user: User, now: datetime) -> list[str]:
    """New recovery codes; the old ones end. Raises Conflict when there is no factor."""
    _take_turns(user)
    factor = of(user)
    if factor is None:
        raise Conflict("second_factor_off", "You have no second factor.")
    factor.codes.all().delete()
    made = _new_codes(factor, now)
    _note("member.recovery_codes_made", user, _himself(user), now)
    return made


@transaction.atomic
def remove(*, user: User, actor: Actor | None = None, now: datetime) -> bool:
    """Ask for no code any more; returns whether one was asked for. By the person, or by `actor`
    for one who is locked out."""
    _take_turns(user)
    was_on = of(user) is not None
    SecondFactor.objects.filter(user_id=user.pk).delete()
    if was_on:
        _note("member.second_factor_removed", user, actor or _himself(user), now)
    return was_on


# --- steps ---------------------------------------------------------------------------------------


def _himself(user: User) -> Actor:
    return Actor("user", user.pk, str(user))


def _take_turns(user: User) -> None:
    """A row that is not there yet cannot be locked: the person's row stands for it."""
    User.objects.select_for_update(no_key=True).get(pk=user.pk)


def _totp(factor: SecondFactor) -> pyotp.TOTP:
    key = keyring.unseal(bytes(factor.sealed), context(factor.user_id)).decode()
    return pyotp.TOTP(key, interval=STEP_SECONDS)


def _take_step(factor: SecondFactor, word: str, now: datetime) -> bool:
    """Use up the step whose code this is; the row is locked. False when there is none that is
    newer than the last one used."""
    try:
        totp = _totp(factor)
    except keyring.CannotOpen:
        log.error("The second factor of %s cannot be opened with these keys.", factor.user_id)
        return False
    here = int(now.timestamp()) // STEP_SECONDS
    for step in range(here - DRIFT, here + DRIFT + 1):
        if step > factor.last_step and random.compare_digest(totp.generate_otp(step), word):
            factor.last_step = step
            factor.save(update_fields=["last_step"])
            return True
    return False


def _plain(code: str) -> str:
    return re.sub(r"[\s-]", "", code[:100]).lower()


def _is_of_app(word: str) -> bool:
    return len(word) == 6 and word.isascii() and word.isdigit()


def _new_codes(factor: SecondFactor, now: datetime) -> list[str]:
    """As they are shown: four groups of four letters and digits."""
    plain = [
        base64.b32encode(random.token_bytes(RECOVERY_BYTES)).decode().lower()
        for _ in range(RECOVERY_CODES)
    ]
    RecoveryCode.objects.bulk_create(
        RecoveryCode(factor=factor, digest=keys.digest(code), created_at=now) for code in plain
    )
    return ["-".join(re.findall("....", code)) for code in plain]


def _note(
    action: str, user: User, actor: Actor, now: datetime, details: dict[str, int] | None = None
) -> None:
    """A row in each company that the person belongs to."""
    with activity.together():
        for company_id in user.memberships.order_by("id").values_list("company_id", flat=True):
            activity.record(
                company_id=company_id,
                actor=actor,
                action=action,
                entity_type="member",
                entity_id=user.pk,
                entity_name=str(user),
                details=details,
                now=now,
            )
