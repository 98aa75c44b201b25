"""The activity log is chained behind the writers' backs, and the chain names what was touched."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction

from billing import archive
from companies import activity, chain, partitions, seals
from companies.errors import Conflict
from companies.models import Activity, Company, Seal, Sealer
from paperclip.engine import tick
from tests import factories
from tests.house.instance import database_address
from tests.races.threads import together

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def acme() -> Company:
    return factories.company("Acme", "ACM")


@pytest.fixture
def globex() -> Company:
    return factories.company("Globex", "GLO")


def note(company: Company, word: str, now: datetime) -> uuid.UUID:
    return activity.record(
        company_id=company.id,
        actor=activity.SYSTEM,
        action="company.noted",
        entity_type="company",
        entity_id=company.id,
        entity_name=word,
        details={"käse": word, "n": 1.50, "list": [1, None, True]},
        now=now,
    )


def several(company: Company, now: datetime, count: int = 6) -> list[uuid.UUID]:
    return [note(company, f"row {n}", now + timedelta(milliseconds=n)) for n in range(count)]


def proved(company: Company) -> chain.Report:
    with chain.snapshot():
        return chain.verify(company.id)


def audit(*words: str) -> str:
    out = StringIO()
    call_command("audit", *words, stdout=out)
    return out.getvalue()


def refused(*words: str) -> str:
    """What `audit verify` says of something that is wrong; it must fail."""
    err = StringIO()
    with pytest.raises(CommandError, match="not what it was"):
        call_command("audit", "verify", *words, stdout=StringIO(), stderr=err)
    return err.getvalue()


@contextmanager
def as_database_owner() -> Iterator[psycopg.Cursor[Any]]:
    """Somebody who may switch triggers off."""
    with psycopg.connect(database_address(), autocommit=True) as own, own.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        yield cursor


# --- sealing -------------------------------------------------------------------------------------


def test_each_company_has_a_chain_of_its_own(acme: Company, globex: Company, now: datetime) -> None:
    several(acme, now)
    several(globex, now, 3)
    assert seals.advance(now=now) == 9
    several(acme, now, 2)
    assert seals.advance(now=now) == 2
    assert seals.advance(now=now) == 0

    links = Seal.objects.for_company(acme.id).order_by("sequence")
    assert [(link.sequence, link.count) for link in links] == [(1, 6), (2, 2)]
    assert links[0].previous == seals.START
    assert bytes(links[1].previous) == bytes(links[0].digest)
    assert proved(acme).proved == 8
    assert proved(globex).proved == 3


def test_the_minutes_round_seals(acme: Company, now: datetime) -> None:
    several(acme, now)
    tick.minute(now=now)
    assert proved(acme).proved >= 6


def test_a_step_is_bounded_and_goes_on_within_a_transaction(acme: Company, now: datetime) -> None:
    with transaction.atomic():
        several(acme, now, 7)
    assert seals.advance(now=now, rows=2, steps=2) == 4
    assert seals.advance(now=now, rows=2) == 3
    assert proved(acme).proved == 7


def test_a_transaction_that_stays_open_is_waited_for_and_never_left_out(
    acme: Company, now: datetime
) -> None:
    """It has written first and commits last; others commit meanwhile, with later moments."""
    with psycopg.connect(database_address()) as slow:
        slow.execute(
            "INSERT INTO companies_activity (id, company_id, occurred_at, actor_type, actor_name,"
            " action, entity_type, entity_id, entity_name, details) VALUES (%s, %s, %s, 'system',"
            " '', 'company.noted', 'company', %s, 'late', '{}')",
            [uuid.uuid4(), acme.id, now, acme.id],
        )
        several(acme, now + timedelta(seconds=1))
        assert seals.advance(now=now) == 0
        assert proved(acme).waiting == 6
        slow.commit()
    several(acme, now + timedelta(seconds=2), 1)
    assert seals.advance(now=now) == 8
    report = proved(acme)
    assert (report.proved, report.waiting, report.broken) == (8, 0, None)
    assert Seal.objects.get().first_row == Activity.objects.get(entity_name="late").id


def test_a_row_that_was_taken_back_is_not_waited_for(acme: Company, now: datetime) -> None:
    with pytest.raises(RuntimeError), transaction.atomic():
        several(acme, now)
        raise RuntimeError
    several(acme, now, 2)
    assert seals.advance(now=now) == 2


def test_two_who_seal_at_once_seal_each_row_once(
    acme: Company, globex: Company, now: datetime
) -> None:
    def write(company: Company, start: int) -> Callable[[], None]:
        return lambda: [several(company, now, 5) for _ in range(10)] and None

    def seal() -> None:
        for _ in range(30):
            seals.advance(now=now, rows=7)

    together(write(acme, 0), write(globex, 1), seal, seal, seal)
    seals.advance(now=now)
    for company in (acme, globex):
        report = proved(company)
        assert (report.proved, report.broken) == (50, None)


def test_writers_do_not_wait_for_a_sealer_that_stands_still(acme: Company, now: datetime) -> None:
    seals.advance(now=now)
    several(acme, now)
    with transaction.atomic():
        assert seals._step(100, now) == 6

        def write() -> None:
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '1s'")
            several(acme, now, 3)
            Company.objects.select_for_update().get(id=acme.id)

        together(lambda: transaction.atomic(write)())
        assert together(lambda: seals.advance(now=now)) == [0]
    assert seals.advance(now=now) == 3


KILLED = """
import os, signal, django
django.setup()
from django.utils import timezone
from companies import seals
real, done = seals._seal, []
def cut(*args):
    real(*args)
    done.append(1)
    if len(done) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
seals._seal = cut
seals.advance(now=timezone.now(), rows=4)
"""


def test_a_sealer_killed_in_the_middle_loses_nothing(
    acme: Company, now: datetime, tmp_path: Path
) -> None:
    several(acme, now, 20)
    seals.advance(now=now, rows=1, steps=1)
    settings = connection.settings_dict
    environment = {
        "PATH": "/usr/bin:/bin",
        "PAPERCLIP_DATA_DIR": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "paperclip.settings",
        "DATABASE_URL": f"postgresql://{settings['USER']}@/{settings['NAME']}"
        f"?host={settings['HOST']}&port={settings['PORT'] or 5432}",
    }
    killed = subprocess.run([sys.executable, "-c", KILLED], cwd=ROOT, env=environment, timeout=60)
    assert killed.returncode == -9
    assert sum(seal.count for seal in Seal.objects.all()) == 9  # the third step left nothing
    assert seals.advance(now=now) == 11
    assert proved(acme).proved == 20


def test_seals_cannot_be_changed_or_deleted(acme: Company, now: datetime) -> None:
    several(acme, now)
    seals.advance(now=now)
    for change in (
        lambda: Seal.objects.update(count=1),
        lambda: Seal.objects.all()._raw_delete("default"),
    ):
        with pytest.raises(IntegrityError, match="append-only"):
            change()


def test_the_chain_goes_on_after_the_database_was_moved(
    acme: Company, now: datetime, caplog: pytest.LogCaptureFixture
) -> None:
    """Another cluster counts its transactions anew, from below what is in the rows."""
    several(acme, now)
    seals.advance(now=now)
    several(acme, now, 2)
    with as_database_owner() as owner:
        owner.execute("UPDATE companies_activity SET xid = xid + 1000000")
        owner.execute("UPDATE companies_sealer SET cluster = '1', at_xid = at_xid + 1000000")
    several(acme, now, 1)
    with pytest.raises(Conflict, match="audit adopt"):
        seals.advance(now=now)
    tick.minute(now=now)
    assert "run `manage.py audit adopt` once" in caplog.text
    try:
        assert "3 rows" in audit("adopt")
        assert "0 rows" in audit("adopt")
        several(acme, now, 4)
        assert seals.advance(now=now) == 4
        report = proved(acme)
        assert (report.proved, report.broken) == (13, None)
    finally:
        with connection.cursor() as cursor:
            cursor.execute(
                "ALTER TABLE companies_activity ALTER COLUMN xid"
                " SET DEFAULT pg_current_xact_id()::text::bigint"
            )


# --- what was touched ----------------------------------------------------------------------------


def test_a_changed_row_is_named(acme: Company, now: datetime) -> None:
    rows = several(acme, now)
    seals.advance(now=now)
    with as_database_owner() as owner:
        owner.execute("UPDATE companies_activity SET entity_name = 'x' WHERE id = %s", [rows[3]])
    assert f"row {rows[3]}" in (told := refused())
    assert "was changed" in told


@pytest.mark.parametrize(
    "change",
    [
        "occurred_at = occurred_at + interval '1 microsecond'",
        "actor_type = 'user'",
        "actor_id = id",
        "run_id = id",
        "action = 'company.deleted'",
        "details = details || '{\"n\": 1.51}'",
        "company_id = (SELECT id FROM companies_company WHERE issue_prefix = 'GLO')",
    ],
)
def test_no_field_can_be_changed_unseen(
    change: str, acme: Company, globex: Company, now: datetime
) -> None:
    rows = several(acme, now)
    seals.advance(now=now)
    with as_database_owner() as owner:
        owner.execute(f"UPDATE companies_activity SET {change} WHERE id = %s", [rows[2]])
    assert str(rows[2]) in refused("--company", "ACM")


def test_a_deleted_row_is_named(acme: Company, now: datetime) -> None:
    rows = several(acme, now)
    seals.advance(now=now)
    with as_database_owner() as owner:
        owner.execute("DELETE FROM companies_activity WHERE id = %s", [rows[1]])
    assert f"row {rows[1]}" in (told := refused())
    assert "is missing" in told


def insert(owner: psycopg.Cursor[Any], company: Company, at: datetime, **more: Any) -> uuid.UUID:
    values = {
        "id": uuid.uuid4(),
        "company_id": company.id,
        "occurred_at": at,
        "actor_type": "user",
        "actor_name": "Olga",
        "action": "secret.created",
        "entity_type": "secret",
        "entity_id": uuid.uuid4(),
        "entity_name": "KEY",
        "details": "{}",
        **more,
    }
    owner.execute(
        f"INSERT INTO companies_activity ({', '.join(values)})"
        f" VALUES ({', '.join(['%s'] * len(values))})",
        list(values.values()),
    )
    return values["id"]


def test_a_row_slipped_in_among_the_sealed_is_named(acme: Company, now: datetime) -> None:
    several(acme, now)
    seals.advance(now=now)
    for xid in (1, 2**60, None):
        with as_database_owner() as owner:
            row = insert(owner, acme, now, xid=xid)
            assert f"row {row}" in (told := refused())
            assert "was inserted" in told
            owner.execute("DELETE FROM companies_activity WHERE id = %s", [row])
    assert proved(acme).broken is None


def test_a_row_of_the_past_is_named_before_and_after_it_is_sealed(
    acme: Company, now: datetime
) -> None:
    several(acme, now)
    seals.advance(now=now)
    later = now + timedelta(days=3)
    several(acme, later, 1)
    seals.advance(now=later)
    with as_database_owner() as owner:
        row = insert(owner, acme, now)
    assert f"row {row}" in (told := refused())
    assert "was inserted" in told
    seals.advance(now=later)
    assert f"row {row}" in (told := refused())
    assert "was inserted" in told


def test_swapped_changed_and_removed_seals_are_named(acme: Company, now: datetime) -> None:
    for _ in range(3):
        several(acme, now, 2)
        seals.advance(now=now)
    for change, back, told in (
        (
            "UPDATE companies_seal SET sequence = 12 - sequence WHERE sequence IN (2, 3)",
            "UPDATE companies_seal SET sequence = 12 - sequence WHERE sequence > 3",
            "seal 2 is missing",
        ),
        (
            "UPDATE companies_seal SET count = 2, sealed_at = sealed_at + interval '1 s'"
            " WHERE sequence = 2",
            "UPDATE companies_seal SET sealed_at = sealed_at - interval '1 s' WHERE sequence = 2",
            "seal 2 is not what was sealed",
        ),
    ):
        with as_database_owner() as owner:
            owner.execute(change)
            assert told in refused()
            owner.execute(back)
    assert proved(acme).broken is None
    with as_database_owner() as owner:
        for sequence in (2, 3):
            owner.execute(
                "UPDATE companies_seal SET sequence = 10 + %(n)s WHERE sequence = %(n)s",
                {"n": sequence},
            )
        owner.execute("UPDATE companies_seal SET sequence = 15 - sequence WHERE sequence > 3")
    assert "seal 2 is not what was sealed" in refused()
    with as_database_owner() as owner:
        owner.execute("DELETE FROM companies_seal WHERE sequence > 1")
    assert "is in no seal" in refused()


def test_a_chain_that_is_written_anew_is_found_by_a_head_kept_elsewhere(
    acme: Company, globex: Company, now: datetime, tmp_path: Path
) -> None:
    rows = several(acme, now)
    several(globex, now, 1)
    seals.advance(now=now)
    file = tmp_path / "heads.jsonl"
    file.write_text(audit("head"))
    assert {json.loads(line)["company"] for line in file.read_text().splitlines()} == {
        str(acme.id),
        str(globex.id),
    }
    several(acme, now, 1)
    seals.advance(now=now)
    assert "the chains contain 2 heads" in audit("verify", "--against", str(file))

    with as_database_owner() as owner:
        owner.execute("UPDATE companies_activity SET entity_name = 'x' WHERE id = %s", [rows[3]])
        owner.execute("DELETE FROM companies_seal")
        owner.execute("DELETE FROM companies_sealer")
    seals.advance(now=now)
    audit("verify")  # the new chain agrees with itself
    told = refused("--against", str(file))
    assert f"head 1 of company {acme.id} is another one now" in told


@pytest.mark.parametrize("text", ["{}", "nothing", '{"company": "x", "sequence": 1, "digest": ""}'])
def test_a_file_of_something_else_is_refused(text: str, acme: Company, tmp_path: Path) -> None:
    file = tmp_path / "heads.jsonl"
    file.write_text(text)
    with pytest.raises(CommandError, match="line 1 is no head"):
        audit("verify", "--against", str(file))


def test_an_unknown_company_is_refused(acme: Company) -> None:
    with pytest.raises(CommandError, match="no company"):
        audit("verify", "--company", "NONE")


# --- with the archive ----------------------------------------------------------------------------

OLD = datetime(2025, 3, 10, 9, 0, tzinfo=UTC)
MARCH = date(2025, 3, 1)
TABLE = "companies_activity"


@pytest.fixture
def march(acme: Company, now: datetime) -> Iterator[Company]:
    """Six rows of March 2025, and two of now, all sealed."""
    partitions.ensure(TABLE, now=OLD, ahead=0)
    several(acme, OLD)
    several(acme, now, 2)
    seals.advance(now=now)
    yield acme
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS companies_activity_2025_03")


def test_an_archived_month_is_counted_or_read_from_its_file(
    march: Company, now: datetime, tmp_path: Path
) -> None:
    entry = archive.archive(table=TABLE, month=MARCH, folder=tmp_path, now=now)
    assert "2 rows proved, 6 counted as archived" in audit("verify")
    assert "8 rows proved, 6 of them in the archive's files" in audit(
        "verify", "--archive", str(tmp_path)
    )

    archive.restore(table=TABLE, month=MARCH, folder=tmp_path, now=now)
    assert "8 rows proved" in audit("verify")
    archive.archive(table=TABLE, month=MARCH, folder=tmp_path, now=now)

    path = tmp_path / entry.file
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).replace(b"row 3", b"row x")))
    with pytest.raises(CommandError, match="SHA-256"):
        audit("verify", "--archive", str(tmp_path))


def test_a_month_from_before_the_numbers_comes_back_and_is_no_intruder(
    acme: Company, now: datetime, tmp_path: Path
) -> None:
    """Files that an earlier version wrote know no transaction, and no seal knows their rows."""
    partitions.ensure(TABLE, now=OLD, ahead=0)
    try:
        several(acme, OLD)
        with as_database_owner() as owner:
            owner.execute("UPDATE companies_activity SET xid = NULL")
        archive.archive(table=TABLE, month=MARCH, folder=tmp_path, now=now)
        several(acme, now, 2)
        seals.advance(now=now)
        assert "2 rows proved" in audit("verify")
        archive.restore(table=TABLE, month=MARCH, folder=tmp_path, now=now)
        assert "2 rows proved" in audit("verify")
        assert Activity.objects.count() == 8
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE IF EXISTS companies_activity_2025_03")


def test_a_row_changed_in_file_and_manifest_is_named(
    march: Company, now: datetime, tmp_path: Path
) -> None:
    """Who forges a month forges its manifest, too; not the seals."""
    row = Activity.objects.get(entity_name="row 3", occurred_at__lt=now - timedelta(days=1)).id
    entry = archive.archive(table=TABLE, month=MARCH, folder=tmp_path, now=now)
    path = tmp_path / entry.file
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).replace(b"row 3", b"row x")))
    entry.sha256 = archive._sha256(path)
    entry.save()
    assert f"row {row}" in (told := refused("--archive", str(tmp_path)))
    assert "changed" in told


def test_a_month_is_away_only_as_a_whole(march: Company, now: datetime, tmp_path: Path) -> None:
    """A row of a month that is not in the archive is missing, not archived."""
    archive.archive(table=TABLE, month=MARCH, folder=tmp_path, now=now)
    with as_database_owner() as owner:
        owner.execute("DELETE FROM companies_activity WHERE entity_name = 'row 1'")
    assert "is missing" in refused()


def test_sealing_reads_by_index(acme: Company, now: datetime) -> None:
    """A step reads what is new, not the log."""
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        cursor.execute(
            "EXPLAIN " + seals._AFTER,
            {"xid": 1, "row": uuid.UUID(int=0), "horizon": 2, "rows": 10},
        )
        plan = "\n".join(line for (line,) in cursor.fetchall())
        cursor.execute("SET enable_seqscan = on")
    assert "xid" in plan
    assert "Bitmap Index Scan" in plan


def test_the_sealers_row_is_the_only_one(acme: Company, now: datetime) -> None:
    seals.advance(now=now)
    seals.advance(now=now)
    assert Sealer.objects.count() == 1
