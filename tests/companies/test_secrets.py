"""Secrets at rest: sealed, bound to their place, readable only with the instance's key."""

from datetime import datetime

import pytest
from pytest_django import Settings

from companies import secrets
from companies.activity import SYSTEM
from companies.errors import Invalid, NotFound
from companies.models import Activity, Company, Secret

VALUE = "sk-proj-canary-0123456789"


def test_a_secret_opens_again(acme: Company, now: datetime) -> None:
    secrets.put(company=acme, name="OPENAI_API_KEY", value=VALUE, actor=SYSTEM, now=now)
    assert secrets.reveal(company_id=acme.id, names=["OPENAI_API_KEY"], now=now) == {
        "OPENAI_API_KEY": VALUE
    }


def test_neither_the_row_nor_the_activity_shows_it(acme: Company, now: datetime) -> None:
    secret = secrets.put(company=acme, name="KEY", value=VALUE, actor=SYSTEM, now=now)
    assert VALUE.encode() not in bytes(secret.sealed)
    assert VALUE not in str(list(Activity.objects.values()))


def test_a_new_value_is_a_new_version(acme: Company, now: datetime) -> None:
    secrets.put(company=acme, name="KEY", value="old", actor=SYSTEM, now=now)
    again = secrets.put(company=acme, name="KEY", value="new", actor=SYSTEM, now=now)
    assert again.version == 2
    assert secrets.reveal(company_id=acme.id, names=["KEY"], now=now) == {"KEY": "new"}


def test_another_company_finds_nothing(acme: Company, globex: Company, now: datetime) -> None:
    secrets.put(company=acme, name="KEY", value=VALUE, actor=SYSTEM, now=now)
    assert secrets.reveal(company_id=globex.id, names=["KEY"], now=now) == {}
    with pytest.raises(NotFound):
        secrets.delete(company=globex, name="KEY", actor=SYSTEM, now=now)


def test_a_row_moved_to_another_company_does_not_open(
    acme: Company, globex: Company, now: datetime
) -> None:
    secret = secrets.put(company=acme, name="KEY", value=VALUE, actor=SYSTEM, now=now)
    Secret.objects.filter(id=secret.id).update(company=globex)
    with pytest.raises(secrets.CannotOpen):
        secrets.reveal(company_id=globex.id, names=["KEY"], now=now)


def test_a_rotated_instance_key_still_opens_by_the_fallback(
    acme: Company, now: datetime, settings: Settings
) -> None:
    secrets.put(company=acme, name="KEY", value=VALUE, actor=SYSTEM, now=now)
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another key of this instance"
    assert secrets.reveal(company_id=acme.id, names=["KEY"], now=now) == {"KEY": VALUE}
    settings.SECRET_KEY_FALLBACKS = []
    with pytest.raises(secrets.CannotOpen):
        secrets.reveal(company_id=acme.id, names=["KEY"], now=now)


@pytest.mark.parametrize("value", ["", "a\x00b", "x" * 16_385])
def test_a_bad_value_is_refused(acme: Company, now: datetime, value: str) -> None:
    with pytest.raises(Invalid):
        secrets.put(company=acme, name="KEY", value=value, actor=SYSTEM, now=now)
    assert not Secret.objects.exists()


@pytest.mark.parametrize("name", ["", "1KEY", "a key", "käse", "x" * 101])
def test_a_bad_name_is_refused(acme: Company, now: datetime, name: str) -> None:
    with pytest.raises(Invalid):
        secrets.put(company=acme, name=name, value=VALUE, actor=SYSTEM, now=now)


def test_a_name_that_no_database_takes_is_refused(acme: Company, now: datetime) -> None:
    with pytest.raises(Invalid) as refused:
        secrets.put(company=acme, name="KEY\x00", value=VALUE, actor=SYSTEM, now=now)
    assert refused.value.field == "name"
    with pytest.raises(NotFound):
        secrets.delete(company=acme, name="KEY\x00", actor=SYSTEM, now=now)
