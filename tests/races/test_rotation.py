"""A new sealing key while secrets are read, written and answered again: nothing is lost, nothing
stays under the old one."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.core.management import CommandError, call_command
from django.db import connection, connections, transaction

from companies import keyring, rotation, secrets
from companies.activity import SYSTEM
from companies.errors import Conflict
from companies.models import Company, IdempotencyRecord, SealingKey, Secret, SecretRead, User
from paperclip import fingerprints
from paperclip.engine import tick
from tests.races.threads import together

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _on_the_tests_database(settings: Any) -> None:
    # Commands start the data folder's own database unless one is given.
    settings.DATABASE_URL = "given"


def rotate(*words: str) -> str:
    out = StringIO()
    call_command("rotate_keys", *words, stdout=out)
    return out.getvalue()


def put(company: Company, name: str, value: str, now: datetime) -> Secret:
    return secrets.put(company=company, name=name, value=value, actor=SYSTEM, now=now)


def reveal(company: Company, *names: str, now: datetime) -> dict[str, str]:
    return secrets.reveal(company_id=company.id, names=names, now=now)


def many(company: Company, now: datetime, count: int = 25) -> dict[str, str]:
    values = {f"KEY_{n}": f"value {n}" for n in range(count)}
    for name, value in values.items():
        put(company, name, value, now)
    return values


def keys_in_use() -> set[bytes]:
    return {
        bytes(sealed)[: keyring.HEAD] for sealed in Secret.objects.values_list("sealed", flat=True)
    }


def current_head() -> bytes:
    return keyring.MAGIC + SealingKey.objects.get(is_current=True).id.bytes


def sealed_directly(value: bytes, context: bytes) -> bytes:
    """As the version before envelopes sealed."""
    key_id = keyring.direct_ids()[0]
    _, key = keyring._derived(keyring._masters()[0], keyring._DIRECT)
    return key_id + b"n" * 12 + AESGCM(key).encrypt(b"n" * 12, value, context)


def test_each_value_has_a_data_key_of_its_own_and_only_that_is_wrapped_anew(
    acme: Company, now: datetime
) -> None:
    values = many(acme, now, 3)
    before = {row.name: bytes(row.sealed) for row in Secret.objects.all()}
    assert len({sealed[20:80] for sealed in before.values()}) == 3
    moments = list(Secret.objects.values_list("name", "version", "updated_at"))

    rotate()

    after = {row.name: bytes(row.sealed) for row in Secret.objects.all()}
    for name, sealed in after.items():
        assert sealed[:20] == current_head() != before[name][:20]
        assert sealed[80:] == before[name][80:]
        assert sealed[20:80] != before[name][20:80]
    assert list(Secret.objects.values_list("name", "version", "updated_at")) == moments
    assert reveal(acme, *values, now=now) == values


def test_what_an_earlier_version_sealed_opens_and_gets_an_envelope(
    acme: Company, now: datetime
) -> None:
    secret = put(acme, "KEY", "now", now)
    context = secrets.context(acme.id, "KEY", 1)
    Secret.objects.filter(id=secret.id).update(sealed=sealed_directly(b"old", context))
    fingerprint = "f" * 64
    answer = IdempotencyRecord.objects.create(
        principal="p",
        route="/x",
        key="k",
        fingerprint=fingerprint,
        body=b"\0" + sealed_directly(b"answer", fingerprint.encode()),
    )
    assert reveal(acme, "KEY", now=now) == {"KEY": "old"}

    assert "1 sealed, 1 of them not by the current key" in rotate("--dry-run")
    assert "kept answers: 1 wrapped" in rotate()

    assert keys_in_use() == {current_head()}
    assert reveal(acme, "KEY", now=now) == {"KEY": "old"}
    answer.refresh_from_db()
    body = bytes(answer.body or b"")
    assert body.startswith(b"\0" + current_head())
    assert keyring.unseal(body[1:], fingerprint.encode()) == b"answer"


def test_a_dry_run_changes_nothing(acme: Company, now: datetime) -> None:
    many(acme, now, 3)
    before = list(Secret.objects.values_list("sealed", flat=True)), SealingKey.objects.count()
    assert "secrets: 3 sealed, 0 of them not by the current key" in rotate("--dry-run")
    assert (list(Secret.objects.values_list("sealed", flat=True)), SealingKey.objects.count()) == (
        before
    )


def test_reads_and_writes_go_on_during_a_rotation(acme: Company, now: datetime) -> None:
    """Five rotations with retirement, while others read, store and replace secrets."""
    values = many(acme, now)
    over = threading.Event()
    read = [0]

    def reading() -> None:
        while not over.is_set():
            keyring._known.clear()  # as a process that has just been started
            assert reveal(acme, *values, now=now) == values
            read[0] += 1

    def writing(own: str) -> int:
        written = 0
        while not over.is_set():
            written += 1
            put(acme, own, f"{own} {written}", now)
            assert reveal(acme, own, now=now) == {own: f"{own} {written}"}
        return written

    def rotating() -> None:
        try:
            for _ in range(5):
                rotate("--batch", "3")
                rotate("--retire")
        finally:
            over.set()

    _, one, two, _, _ = together(
        rotating, lambda: writing("ONE"), lambda: writing("TWO"), reading, reading
    )

    assert SealingKey.objects.count() == 1
    assert keys_in_use() == {current_head()}
    assert reveal(acme, "ONE", "TWO", now=now) == {"ONE": f"ONE {one}", "TWO": f"TWO {two}"}
    assert reveal(acme, *values, now=now) == values
    assert read[0]


def test_a_key_is_not_replaced_under_a_writer(acme: Company, now: datetime) -> None:
    """Who has sealed and not yet committed holds the key until then."""
    many(acme, now, 1)
    done: list[str] = []

    def rotating() -> None:
        try:
            done.append(rotate())
        finally:
            connections.close_all()

    with transaction.atomic():
        put(acme, "LATE", "late", now)
        other = threading.Thread(target=rotating)
        other.start()
        other.join(1)
        assert not done
    other.join(30)
    assert done
    assert keys_in_use() == {current_head()}
    assert reveal(acme, "LATE", now=now) == {"LATE": "late"}


def test_two_who_rotate_at_once_share_one_rotation(acme: Company, now: datetime) -> None:
    values = many(acme, now)
    old = current_head()
    _, is_new = rotation.begin(now=now)
    assert is_new
    told = together(*(lambda: rotate("--batch", "2") for _ in range(3)))
    assert any("its rotation goes on" in text for text in told)
    assert old not in keys_in_use()
    assert keys_in_use() == {current_head()}
    assert reveal(acme, *values, now=now) == values


def test_who_comes_late_to_a_finished_rotation_leaves_the_next_one_alone(
    acme: Company, now: datetime
) -> None:
    """Its key may be retired at any time: what it wrapped by it then would be lost for good."""
    values = many(acme, now, 4)
    late, _ = rotation.begin(now=now)
    rotate()
    rotate()
    assert current_head() != keyring.MAGIC + late.id.bytes
    for place in rotation.PLACES:
        assert list(rotation.passes(place, late)) == []
    assert rotation.finish(late, now=now)
    assert keys_in_use() == {current_head()}
    rotate("--retire")
    assert rotation.finish(late, now=now)
    assert reveal(acme, *values, now=now) == values


KILLED = """
import os, signal, django
django.setup()
from django.core.management import call_command
from companies import rotation
real, done = rotation.step, []
def cut(*args, **more):
    done.append(1)
    if len(done) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args, **more)
rotation.step = cut
call_command("rotate_keys", "--batch", "4")
"""


def test_a_rotation_killed_between_batches_goes_on(
    acme: Company, now: datetime, tmp_path: Path, settings: Any
) -> None:
    values = many(acme, now)
    at = connection.settings_dict
    environment = {
        "PATH": "/usr/bin:/bin",
        "PAPERCLIP_DATA_DIR": str(tmp_path),
        "SECRET_KEY": settings.SECRET_KEY,
        "DJANGO_SETTINGS_MODULE": "paperclip.settings",
        "DATABASE_URL": f"postgresql://{at['USER']}@/{at['NAME']}"
        f"?host={at['HOST']}&port={at['PORT'] or 5432}",
    }
    killed = subprocess.run([sys.executable, "-c", KILLED], cwd=ROOT, env=environment, timeout=60)
    assert killed.returncode == -9
    assert len(keys_in_use()) == 2
    assert reveal(acme, *values, now=now) == values
    with pytest.raises(CommandError, match="A rotation is under way"):
        rotate("--retire")
    assert "is current already: its rotation goes on" in rotate()
    assert keys_in_use() == {current_head()}
    assert "is deleted" in rotate("--retire")
    assert reveal(acme, *values, now=now) == values


def test_an_old_key_that_is_still_used_is_not_retired(acme: Company, now: datetime) -> None:
    many(acme, now, 2)
    before = bytes(Secret.objects.get(name="KEY_0").sealed)
    rotate()
    Secret.objects.filter(name="KEY_0").update(sealed=before)  # as from a back-up
    assert "stays: it still seals 1" in rotate("--retire")
    assert reveal(acme, "KEY_0", now=now) == {"KEY_0": "value 0"}


def test_a_wrong_secret_key_is_told_in_a_sentence(
    acme: Company, now: datetime, settings: Any
) -> None:
    many(acme, now, 2)
    before = list(Secret.objects.values_list("sealed", flat=True))
    fingerprints.check(now=now)
    was, settings.SECRET_KEY = settings.SECRET_KEY, "quite another key"
    with pytest.raises(CommandError, match="The SECRET_KEY of this instance is not the one"):
        rotate()
    fingerprints.accept(now=now)
    with pytest.raises(CommandError, match="name it in SECRET_KEY_FALLBACKS"):
        rotate()
    assert list(Secret.objects.values_list("sealed", flat=True)) == before
    settings.SECRET_KEY_FALLBACKS = [was]
    rotate()
    settings.SECRET_KEY_FALLBACKS = []  # all is under the new one now
    assert reveal(acme, "KEY_1", now=now) == {"KEY_1": "value 1"}


def test_what_nobody_can_open_is_counted_and_stops_no_other(
    acme: Company, now: datetime, settings: Any
) -> None:
    many(acme, now, 3)
    context = secrets.context(acme.id, "KEY_1", 1)
    was, settings.SECRET_KEY = settings.SECRET_KEY, "a key that is lost"
    lost = sealed_directly(b"lost", context)
    settings.SECRET_KEY = was
    Secret.objects.filter(name="KEY_1").update(sealed=lost)
    with pytest.raises(CommandError, match="1 of the secrets cannot be opened with the keys of"):
        rotate()
    assert len(keys_in_use()) == 2
    assert reveal(acme, "KEY_0", "KEY_2", now=now) == {"KEY_0": "value 0", "KEY_2": "value 2"}
    put(acme, "KEY_1", "again", now)
    rotate()
    assert keys_in_use() == {current_head()}


@pytest.mark.parametrize("at", [0, 10, 30, 90, -1])
def test_a_changed_byte_opens_nothing(at: int, acme: Company, now: datetime) -> None:
    secret = put(acme, "KEY", "value", now)
    sealed = bytearray(secret.sealed)
    sealed[at] ^= 1
    Secret.objects.filter(id=secret.id).update(sealed=bytes(sealed))
    with pytest.raises(secrets.CannotOpen, match="The secret KEY cannot be opened"):
        reveal(acme, "KEY", now=now)


def test_who_opened_which_secret_is_written_down(
    acme: Company, globex: Company, olga: User, now: datetime
) -> None:
    secret, run = put(acme, "KEY", "value", now), uuid.uuid4()
    for reader in (
        secrets.Reader(SecretRead.Purpose.RUN, run),
        secrets.Reader(SecretRead.Purpose.TEST, user_id=olga.id),
    ):
        secrets.reveal(company_id=acme.id, names=["KEY", "NONE"], reader=reader, now=now)
    reveal(globex, "KEY", now=now)
    rows = SecretRead.objects.order_by("id").values_list(
        "company_id", "secret_id", "purpose", "run_id", "user_id", "read_at"
    )
    assert list(rows) == [
        (acme.id, secret.id, "run", run, None, now),
        (acme.id, secret.id, "test", None, olga.id, now),
    ]


def test_who_opened_what_is_forgotten_after_ninety_days(acme: Company, now: datetime) -> None:
    put(acme, "KEY", "value", now)
    for days in (0, 89, 91):
        reveal(acme, "KEY", now=now - timedelta(days=days))
    tick.forget(now=now)
    assert {(now - row.read_at).days for row in SecretRead.objects.all()} == {0, 89}


def test_rotation_with_a_batch_of_nonsense_is_refused(db: None) -> None:
    with pytest.raises(CommandError, match="A batch has 1 to"):
        rotate("--batch", "0")


def test_retiring_during_a_rotation_is_refused(acme: Company, now: datetime) -> None:
    many(acme, now, 1)
    rotation.begin(now=now)
    with pytest.raises(Conflict):
        rotation.retire()
