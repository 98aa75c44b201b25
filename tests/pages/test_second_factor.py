"""The second factor at sign-in, as a person meets it."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from html import unescape
from io import StringIO
from typing import Any

import pyotp
import pytest
import time_machine
from django.core.management import CommandError, call_command
from django.test import Client

from companies import operator_keys, second_factor, sign_in
from companies.models import Activity, Company, RecoveryCode, SecondFactor, User
from tests import factories

STEP = timedelta(seconds=second_factor.STEP_SECONDS)


@pytest.fixture(autouse=True)
def _on_the_tests_database(settings: Any) -> None:
    # Commands start the data folder's own database unless one is given.
    settings.DATABASE_URL = "given"


@pytest.fixture
def app(olga: User, acme: Company, now: datetime) -> pyotp.TOTP:
    """Olga's authenticator app. Its codes of this minute are fresh: it was set up an hour ago."""
    then = now - timedelta(minutes=50)
    second_factor.begin(user=olga, now=then)
    waiting = second_factor.enrolment(user=olga, now=then)
    assert waiting is not None
    app = pyotp.TOTP(waiting.key)
    second_factor.confirm(user=olga, code=app.at(then), now=then)
    return app


def password(client: Client, olga: User, where: str = "/sign-in") -> Any:
    return client.post(where, {"email": olga.email, "password": factories.PASSWORD})


def is_in(client: Client) -> bool:
    return client.get("/c/ACM/").status_code == 200


def codes_on(page: str) -> list[str]:
    return re.findall(r"\b(?:[a-z2-7]{4}-){3}[a-z2-7]{4}\b", page)


# --- set-up --------------------------------------------------------------------------------------


def test_a_person_sets_it_up_with_a_picture_and_a_first_code(olgas: Client, olga: User) -> None:
    assert "Set it up" in olgas.get("/second-factor").content.decode()
    asked = {"wish": "begin", "word": factories.PASSWORD}
    assert olgas.post("/second-factor", asked)["Location"] == "/second-factor"
    page = olgas.get("/second-factor").content.decode()
    assert "<svg" in page
    assert 'class="qr"' in page
    key = re.search(r"<code>([A-Z2-7]{32})</code>", page)
    assert key is not None

    done = olgas.post("/second-factor", {"wish": "confirm", "code": pyotp.TOTP(key[1]).now()})

    codes = codes_on(done.content.decode())
    assert len(set(codes)) == second_factor.RECOVERY_CODES
    after = olgas.get("/second-factor").content.decode()
    assert "10 recovery codes left" in after
    assert key[1] not in after
    assert not codes_on(after)
    assert Activity.objects.get(action="member.second_factor_added").actor_id == olga.pk
    assert "With a second factor" in olgas.get("/c/ACM/settings/").content.decode()


def test_neither_the_key_nor_a_recovery_code_lies_open_in_the_database(
    olga: User, acme: Company, now: datetime
) -> None:
    second_factor.begin(user=olga, now=now)
    waiting = second_factor.enrolment(user=olga, now=now)
    assert waiting is not None
    codes = second_factor.confirm(user=olga, code=pyotp.TOTP(waiting.key).at(now), now=now)
    factor = SecondFactor.objects.get(user=olga)
    assert waiting.key.encode() not in bytes(factor.sealed)
    digests = " ".join(RecoveryCode.objects.values_list("digest", flat=True))
    assert not any(code in digests or code.replace("-", "") in digests for code in codes)
    assert waiting.key not in repr(waiting)


def test_a_borrowed_session_sets_nothing_up_without_the_password(olgas: Client) -> None:
    answer = olgas.post("/second-factor", {"wish": "begin", "word": "guess"})
    assert answer.status_code == 422
    assert not SecondFactor.objects.exists()


@pytest.mark.parametrize("word", ["000", "１２３４５６", "٠١٢٣٤٥", "é", "a\x00b", ""])
def test_a_wrong_first_code_turns_nothing_on(
    olgas: Client, olga: User, now: datetime, word: str
) -> None:
    second_factor.begin(user=olga, now=now)
    answer = olgas.post("/second-factor", {"wish": "confirm", "code": word})
    assert answer.status_code == 422
    assert "not the code of this moment" in answer.content.decode()
    assert second_factor.of(olga) is None


def test_a_set_up_that_nobody_finished_is_not_asked_for_and_ends(
    client: Client, olga: User, acme: Company, now: datetime
) -> None:
    second_factor.begin(user=olga, now=now - second_factor.ENROLMENT)
    password(client, olga)
    assert is_in(client)
    assert "Set it up" in client.get("/second-factor").content.decode()
    late = client.post("/second-factor", {"wish": "confirm", "code": "123456"}, follow=True)
    assert "begin again" in late.content.decode()


def test_nobody_in_particular_is_sent_to_sign_in(client: Client, db: None) -> None:
    assert client.get("/second-factor")["Location"].startswith("/sign-in")
    assert client.get("/sign-in/code")["Location"] == "/sign-in"


# --- sign-in -------------------------------------------------------------------------------------


def test_the_password_alone_opens_neither_dashboard_nor_admin(
    client: Client, olga: User, app: pyotp.TOTP
) -> None:
    olga.is_staff = olga.is_superuser = True
    olga.save()
    asked = password(client, olga, "/sign-in?next=/admin/")
    assert asked["Location"] == "/sign-in/code"
    assert client.get("/c/ACM/").status_code == 302
    assert client.get("/admin/").status_code == 302
    assert client.get("/api/companies").status_code == 401

    answer = client.post("/sign-in/code", {"code": app.now()})

    assert answer["Location"] == "/admin/"
    assert client.get("/admin/").status_code == 200
    assert is_in(client)


def test_a_one_time_link_does_not_go_round_it(
    client: Client, olga: User, app: pyotp.TOTP, now: datetime
) -> None:
    token = sign_in.make_link(user=olga, now=now)
    assert client.post(f"/sign-in/{token}")["Location"] == "/sign-in/code"
    assert not is_in(client)
    client.post("/sign-in/code", {"code": app.now()})
    assert is_in(client)


def test_a_code_works_once(client: Client, olga: User, app: pyotp.TOTP, now: datetime) -> None:
    with time_machine.travel(now, tick=False):
        code = app.now()
        password(client, olga)
        client.post("/sign-in/code", {"code": code})
        assert is_in(client)

        again = Client()
        password(again, olga)
        assert again.post("/sign-in/code", {"code": code}).status_code == 422
        assert not is_in(again)


def test_an_older_code_than_the_last_one_is_refused(
    olga: User, app: pyotp.TOTP, now: datetime
) -> None:
    assert second_factor.verify(user=olga, code=app.at(now), now=now)
    assert not second_factor.verify(user=olga, code=app.at(now - STEP), now=now)
    assert second_factor.verify(user=olga, code=app.at(now + STEP), now=now)


@pytest.mark.parametrize(("steps", "taken"), [(-2, False), (-1, True), (1, True), (2, False)])
def test_a_clock_may_be_off_by_one_step(
    olga: User, app: pyotp.TOTP, now: datetime, steps: int, taken: bool
) -> None:
    code = app.at(now + steps * STEP)
    assert second_factor.verify(user=olga, code=code, now=now) is taken


@pytest.mark.parametrize("word", ["", "0", "٠١٢٣٤٥", "1234567", "a\x00b", "é" * 500, "------"])
def test_what_is_no_code_is_refused(client: Client, olga: User, app: pyotp.TOTP, word: str) -> None:
    password(client, olga)
    assert client.post("/sign-in/code", {"code": word}).status_code == 422
    assert not is_in(client)


def test_a_recovery_code_works_once_and_is_noted(
    client: Client, olga: User, app: pyotp.TOTP, now: datetime
) -> None:
    code = second_factor.renew_codes(user=olga, now=now)[3]
    for browser, status in ((client, 302), (Client(), 422)):
        password(browser, olga)
        assert "Recovery code" in browser.get("/sign-in/code?with=recovery").content.decode()
        answer = browser.post("/sign-in/code?with=recovery", {"code": f" {code.upper()} "})
        assert answer.status_code == status
    assert is_in(client)
    row = Activity.objects.get(action="member.recovery_code_used")
    assert row.details == {"left": second_factor.RECOVERY_CODES - 1}
    assert "signed in with a recovery code" in client.get("/c/ACM/activity/").content.decode()


def test_new_recovery_codes_end_the_old_ones(olga: User, app: pyotp.TOTP, now: datetime) -> None:
    old = second_factor.renew_codes(user=olga, now=now)
    second_factor.renew_codes(user=olga, now=now)
    assert not second_factor.verify(user=olga, code=old[0], now=now)


def test_guessing_codes_is_slowed_down_also_from_a_new_browser_each_time(
    olga: User, app: pyotp.TOTP
) -> None:
    answers = []
    for _ in range(second_factor.LIMITS[0][0] + 1):
        browser = Client()
        browser.force_login(olga)  # a session of which only the half is kept
        half = browser.session
        half.flush()
        half["second_factor"] = {
            "user": str(olga.pk), "proof": olga.get_session_auth_hash(), "at": 9e12, "next": "/"
        }  # fmt: skip
        half.save()
        browser.cookies[_cookie()] = half.session_key or ""
        answers.append(browser.post("/sign-in/code", {"code": "000000"}))
    assert [answer.status_code for answer in answers[:-1]] == [422] * (len(answers) - 1)
    assert answers[-1].status_code == 429
    assert int(answers[-1]["Retry-After"]) > 0
    right = Client()
    right.cookies = browser.cookies
    assert right.post("/sign-in/code", {"code": app.now()}).status_code == 429


def _cookie() -> str:
    from django.conf import settings

    return str(settings.SESSION_COOKIE_NAME)


def test_who_waits_too_long_starts_again(
    client: Client, olga: User, app: pyotp.TOTP, now: datetime
) -> None:
    password(client, olga)
    with time_machine.travel(now + timedelta(minutes=11), tick=False):
        answer = client.post("/sign-in/code", {"code": app.now()})
    assert answer["Location"] == "/sign-in"
    assert not is_in(client)


def test_a_new_password_or_a_deactivated_account_ends_the_wait(
    client: Client, olga: User, app: pyotp.TOTP
) -> None:
    password(client, olga)
    olga.set_password("another long phrase")
    olga.save()
    assert client.post("/sign-in/code", {"code": app.now()})["Location"] == "/sign-in"
    gone = Client()
    gone.post("/sign-in", {"email": olga.email, "password": "another long phrase"})
    olga.is_active = False
    olga.save()
    assert gone.post("/sign-in/code", {"code": app.now()})["Location"] == "/sign-in"


def test_no_link_leads_out_of_the_house_after_the_code(
    client: Client, olga: User, app: pyotp.TOTP
) -> None:
    password(client, olga, "/sign-in?next=https://evil.example/")
    assert client.post("/sign-in/code", {"code": app.now()})["Location"] == "/"


def test_api_keys_work_as_before(
    client: Client, olga: User, app: pyotp.TOTP, now: datetime
) -> None:
    _, token = operator_keys.create(user=olga, name="script", now=now)
    headers = {"Authorization": f"Bearer {token}"}
    assert client.get("/api/companies", headers=headers).status_code == 200


def test_codes_do_not_open_for_another_person(
    olga: User, vera: User, app: pyotp.TOTP, now: datetime
) -> None:
    code = second_factor.renew_codes(user=olga, now=now)[0]
    second_factor.begin(user=vera, now=now)
    waiting = second_factor.enrolment(user=vera, now=now)
    assert waiting is not None
    second_factor.confirm(user=vera, code=pyotp.TOTP(waiting.key).at(now), now=now)
    assert not second_factor.verify(user=vera, code=code, now=now)
    assert not second_factor.verify(user=vera, code=app.at(now), now=now)


# --- afterwards ----------------------------------------------------------------------------------


def test_a_person_removes_it_with_the_password(olgas: Client, olga: User, app: pyotp.TOTP) -> None:
    wrong = olgas.post("/second-factor", {"wish": "remove", "word": "guess"})
    assert wrong.status_code == 422
    assert second_factor.of(olga) is not None
    olgas.post("/second-factor", {"wish": "remove", "word": factories.PASSWORD})
    assert second_factor.of(olga) is None
    assert not RecoveryCode.objects.exists()
    assert Activity.objects.get(action="member.second_factor_removed").actor_id == olga.pk


def test_who_has_no_password_removes_it_with_a_code(
    client: Client, olga: User, app: pyotp.TOTP
) -> None:
    olga.set_unusable_password()
    olga.save()
    client.force_login(olga)
    assert client.post("/second-factor", {"wish": "remove", "word": ""}).status_code == 422
    client.post("/second-factor", {"wish": "remove", "word": app.now()})
    assert second_factor.of(olga) is None


def test_new_recovery_codes_are_shown_once(olgas: Client, app: pyotp.TOTP) -> None:
    asked = {"wish": "codes", "word": factories.PASSWORD}
    page = olgas.post("/second-factor", asked).content.decode()
    assert len(codes_on(page)) == 2 * second_factor.RECOVERY_CODES  # to read, and to copy
    assert not codes_on(olgas.get("/second-factor").content.decode())


def test_who_has_one_cannot_begin_another(olgas: Client, app: pyotp.TOTP, olga: User) -> None:
    before = SecondFactor.objects.get().pk
    asked = {"wish": "begin", "word": factories.PASSWORD}
    page = unescape(olgas.post("/second-factor", asked, follow=True).content.decode())
    assert "remove it first" in page
    assert SecondFactor.objects.get().pk == before


def test_whoever_runs_the_instance_takes_it_from_who_is_locked_out(
    client: Client, olga: User, app: pyotp.TOTP
) -> None:
    out = StringIO()
    call_command("reset_second_factor", "--email", "OLGA@example.com", stdout=out)
    assert "No code is asked of" in out.getvalue()
    assert Activity.objects.get(action="member.second_factor_removed").actor_type == "system"
    password(client, olga)
    assert is_in(client)
    call_command("reset_second_factor", "--email", olga.email, stdout=out)
    assert "has no second factor" in out.getvalue()
    with pytest.raises(CommandError, match="no operator"):
        call_command("reset_second_factor", "--email", "who@example.com", stdout=out)


def test_an_instance_with_other_keys_refuses_codes_and_takes_recovery_codes(
    olga: User, app: pyotp.TOTP, now: datetime, settings: Any
) -> None:
    code = second_factor.renew_codes(user=olga, now=now)[0]
    settings.SECRET_KEY = "another " * 8
    assert not second_factor.verify(user=olga, code=app.at(now), now=now)
    assert second_factor.verify(user=olga, code=code, now=now)
