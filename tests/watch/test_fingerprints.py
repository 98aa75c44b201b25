"""An instance with another key than the others of its database is told at its start."""

from __future__ import annotations

import pytest
from django.core.management import call_command

from companies import secrets
from companies.activity import SYSTEM
from paperclip import boot, fingerprints
from paperclip.models import KeyFingerprint
from tests.house.instance import database_address

pytestmark = pytest.mark.django_db


def test_the_first_instance_notes_its_key_and_a_second_with_the_same_starts(settings, now):
    settings.SECRET_KEY = "the key of both"
    fingerprints.check(now=now)
    fingerprints.check(now=now)
    noted = KeyFingerprint.objects.get()
    assert settings.SECRET_KEY not in (noted.salt, noted.digest)
    assert len(noted.digest) == 64


def test_one_with_another_key_is_refused_in_a_sentence_without_any_key(settings, now):
    fingerprints.check(now=now)
    settings.SECRET_KEY = "quite another key"
    with pytest.raises(fingerprints.OtherKey) as refused:
        fingerprints.check(now=now)
    assert str(refused.value).startswith("The SECRET_KEY of this instance is not the one")
    assert "\n" not in str(refused.value)
    assert settings.SECRET_KEY not in str(refused.value)


def test_a_key_is_changed_by_naming_the_old_one(settings, now):
    settings.SECRET_KEY = "old"
    fingerprints.check(now=now)
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "new", ["older", "old"]
    fingerprints.check(now=now)
    settings.SECRET_KEY_FALLBACKS = []
    fingerprints.check(now=now)  # the new one is noted
    settings.SECRET_KEY = "old"
    with pytest.raises(fingerprints.OtherKey):
        fingerprints.check(now=now)


def test_a_lost_key_is_given_up_by_a_command(settings, now, capsys):
    fingerprints.check(now=now)
    settings.SECRET_KEY = "the key after the fire"
    call_command("accept_key")
    assert "SECRET_KEY of this instance is used from now on" in capsys.readouterr().out
    fingerprints.check(now=now)


def test_a_start_ends_with_the_sentence(settings, now, monkeypatch):
    settings.DIRECT_DSN = database_address()
    monkeypatch.setattr("companies.live.Sender._start", lambda self: None)
    fingerprints.check(now=now)
    settings.SECRET_KEY = "quite another key"
    with pytest.raises(boot.BootError, match="is not the one that this database is used with"):
        boot.prepare_database(now)


def test_a_shift_of_its_own_is_refused_as_well(settings, now, monkeypatch):
    from django.core.management import CommandError

    monkeypatch.setattr("paperclip.engine.station.in_foreground", lambda **_: pytest.fail("ran"))
    fingerprints.check(now=now)
    settings.SECRET_KEY = "quite another key"
    with pytest.raises(CommandError, match="SECRET_KEY"):
        call_command("shift")


def test_secrets_that_no_key_opens_are_counted(settings, acme, now):
    secrets.put(company=acme, name="ONE", value="1", actor=SYSTEM, now=now)
    assert secrets.unopenable() == 0
    was, settings.SECRET_KEY = settings.SECRET_KEY, "another"
    secrets.put(company=acme, name="TWO", value="2", actor=SYSTEM, now=now)
    assert secrets.unopenable() == 1
    settings.SECRET_KEY_FALLBACKS = [was]
    assert secrets.unopenable() == 0
