"""Two at the same code, and a set-up beside another."""

from __future__ import annotations

from datetime import datetime, timedelta

import pyotp
import pytest

from companies import rotation, second_factor
from companies.errors import Refusal
from companies.models import Company, RecoveryCode, SecondFactor, User
from tests.races.threads import many, one_inside_the_other, together

pytestmark = pytest.mark.django_db(transaction=True)


def enrol(user: User, now: datetime) -> pyotp.TOTP:
    second_factor.begin(user=user, now=now)
    waiting = second_factor.enrolment(user=user, now=now)
    assert waiting is not None
    return pyotp.TOTP(waiting.key)


def on(user: User, now: datetime) -> pyotp.TOTP:
    then = now - timedelta(minutes=10)
    app = enrol(user, then)
    second_factor.confirm(user=user, code=app.at(then), now=then)
    return app


def test_of_many_with_the_same_code_one_is_let_in(olga: User, now: datetime) -> None:
    app = on(olga, now)
    answers = many(8, lambda _: second_factor.verify(user=olga, code=app.at(now), now=now))
    assert sorted(answers) == [False] * 7 + [True]


def test_of_many_with_the_same_recovery_code_one_is_let_in(
    olga: User, acme: Company, now: datetime
) -> None:
    on(olga, now)
    code = second_factor.renew_codes(user=olga, now=now)[0]
    answers = many(8, lambda _: second_factor.verify(user=olga, code=code, now=now))
    assert sorted(answers) == [False] * 7 + [True]


def test_of_two_who_confirm_one_gets_the_codes(olga: User, now: datetime) -> None:
    app = enrol(olga, now)

    def confirm() -> int:
        try:
            return len(second_factor.confirm(user=olga, code=app.at(now), now=now))
        except Refusal:
            return 0

    assert sorted(together(confirm, confirm)) == [0, second_factor.RECOVERY_CODES]
    assert RecoveryCode.objects.count() == second_factor.RECOVERY_CODES


def test_a_set_up_that_begins_beside_a_confirmation_does_not_take_it_away(
    olga: User, now: datetime
) -> None:
    app = enrol(olga, now)
    answers = one_inside_the_other(
        lambda: second_factor.confirm(user=olga, code=app.at(now), now=now),
        lambda: second_factor.begin(user=olga, now=now),
    )
    assert getattr(answers[1], "code", "") == "second_factor_on"
    assert second_factor.of(olga) is not None


def test_two_set_ups_at_once_leave_one(olga: User, now: datetime) -> None:
    many(4, lambda _: second_factor.begin(user=olga, now=now))
    assert SecondFactor.objects.filter(user=olga).count() == 1


def test_a_rotation_of_the_sealing_key_takes_it_along(olga: User, now: datetime) -> None:
    app = on(olga, now)
    before = bytes(SecondFactor.objects.get().sealed)
    row, _ = rotation.begin(now=now)
    for place in rotation.PLACES:
        for _ in rotation.passes(place, row):
            pass
    assert rotation.finish(row, now=now)
    rotation.retire()
    assert bytes(SecondFactor.objects.get().sealed)[:20] != before[:20]
    assert second_factor.verify(user=olga, code=app.at(now), now=now)
