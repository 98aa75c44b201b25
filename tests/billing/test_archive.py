"""An old month goes to a file that proves what it holds, and comes back the same."""

from __future__ import annotations

import gzip
import json
import shutil
import threading
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from agents.models import Agent
from billing import archive, audit, reports
from billing.models import ArchivedPartition, CostEvent
from companies import partitions
from companies.errors import Conflict, Invalid, NotFound
from companies.models import Company
from tests.billing.receipts import book

OLD = datetime(2025, 3, 10, 9, 0, tzinfo=UTC)
MARCH = date(2025, 3, 1)
TABLE = "billing_costevent"


@pytest.fixture
def march(ada: Agent) -> Agent:
    """Costs of March 2025, in a partition of their own, and one of now."""
    for month in (OLD, OLD + timedelta(days=31)):
        partitions.ensure(TABLE, now=month, ahead=0)
    for number in range(20):
        book(
            ada,
            f"old{number}",
            None if number == 7 else 11 * number,
            now=OLD + timedelta(days=number),
            note='quotes " and \\ back\u2028slashes\n',
            usage_provider="openrouter",
        )
    book(ada, "new", 500)
    connection.check_constraints()  # as a commit would: none waits when the tables change
    return ada


def take(folder: Path) -> ArchivedPartition:
    return archive.archive(table=TABLE, month=MARCH, folder=folder, now=timezone.now())


def test_a_month_leaves_the_database_and_its_file_tells_what_it_held(
    march: Agent, tmp_path: Path
) -> None:
    entry = take(tmp_path)
    assert (entry.state, entry.rows) == ("dropped", 20)
    assert entry.sums["cost_micros"] == 11 * (sum(range(20)) - 7)
    assert CostEvent.objects.count() == 1
    manifest = json.loads((tmp_path / "billing_costevent_2025_03.manifest.json").read_text())
    assert (manifest["rows"], manifest["sha256"]) == (20, entry.sha256)
    with gzip.open(tmp_path / entry.file, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    assert [row["cost_micros"] for row in rows][6:9] == [66, None, 88]


def test_pages_and_books_stay_exact(march: Agent, acme: Company, tmp_path: Path) -> None:
    before = reports.by_agent(company_id=acme.id, now=OLD)
    take(tmp_path)
    assert reports.by_agent(company_id=acme.id, now=OLD) == before
    assert before[0].events == 20
    assert audit.drifts() == []


def test_a_month_comes_back_as_it_was(march: Agent, tmp_path: Path) -> None:
    before = list(CostEvent.objects.order_by("id").values())
    take(tmp_path)
    entry = archive.restore(table=TABLE, month=MARCH, folder=tmp_path, now=timezone.now())
    assert entry.state == "restored"
    assert list(CostEvent.objects.order_by("id").values()) == before
    assert audit.drifts() == []


def test_what_came_back_is_append_only_and_can_go_again(march: Agent, tmp_path: Path) -> None:
    take(tmp_path)
    archive.restore(table=TABLE, month=MARCH, folder=tmp_path, now=timezone.now())
    with pytest.raises(Exception, match="append-only"), transaction.atomic():
        CostEvent.objects.filter(occurred_at__lt=OLD + timedelta(days=5)).delete()
    assert take(tmp_path).state == "dropped"


@pytest.mark.parametrize("step", ["_export", "_drop"])
def test_an_archive_that_was_cut_goes_on_where_it_stopped(
    march: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def cut(*args: Any) -> None:
        raise RuntimeError("power cut")

    with monkeypatch.context() as broken:
        broken.setattr(archive, step, cut)
        with pytest.raises(RuntimeError):
            take(tmp_path)
    assert (TABLE, MARCH) in archive.due(keep_months=600, now=timezone.now())
    assert take(tmp_path).rows == 20
    assert audit.drifts() == []


def test_a_file_that_was_changed_is_not_restored(march: Agent, tmp_path: Path) -> None:
    entry = take(tmp_path)
    path = tmp_path / entry.file
    data = gzip.decompress(path.read_bytes()).replace(b'"cost_micros":66', b'"cost_micros":67')
    path.write_bytes(gzip.compress(data))
    with pytest.raises(archive.ArchiveError, match="SHA-256"):
        archive.restore(table=TABLE, month=MARCH, folder=tmp_path, now=timezone.now())
    assert CostEvent.objects.count() == 1


def test_nothing_is_dropped_when_the_file_is_gone(
    march: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = archive._drop

    def lose(entry: ArchivedPartition, name: str, folder: Path, now: datetime) -> None:
        shutil.rmtree(folder)
        real(entry, name, folder, now)

    monkeypatch.setattr(archive, "_drop", lose)
    with pytest.raises(archive.ArchiveError, match="not there"):
        take(tmp_path)
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM billing_costevent_2025_03")
        assert cursor.fetchone() == (20,)


def test_a_month_that_may_still_get_receipts_stays(acme: Company, tmp_path: Path) -> None:
    now = timezone.now()
    this_month = partitions.month_start(now).date()
    with pytest.raises(Conflict):
        archive.archive(table=TABLE, month=this_month, folder=tmp_path, now=now)
    assert (TABLE, this_month) not in archive.due(keep_months=1, now=now)


def test_so_many_full_months_are_kept(march: Agent) -> None:
    july = datetime(2025, 7, 20, tzinfo=UTC)
    kept = [month for table, month in archive.due(keep_months=3, now=july) if table == TABLE]
    assert kept == [MARCH]
    kept = [month for table, month in archive.due(keep_months=2, now=july) if table == TABLE]
    assert kept == [MARCH, date(2025, 4, 1)]
    with pytest.raises(Invalid):
        archive.due(keep_months=0, now=july)


def test_what_was_never_archived_is_not_found(db: None, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        archive.restore(table=TABLE, month=MARCH, folder=tmp_path, now=timezone.now())
    with pytest.raises(NotFound):
        archive.archive(table="auth_user", month=MARCH, folder=tmp_path, now=timezone.now())


def test_the_command_archives_lists_verifies_and_restores(
    march: Agent, tmp_path: Path, capsys: Any
) -> None:
    folder = ["--folder", str(tmp_path), "--table", TABLE]
    call_command("archive", *folder)
    assert "dropped   billing_costevent 2025-03  20 rows" in capsys.readouterr().out
    call_command("archive", "--verify", *folder)
    call_command("archive", "--restore", "2025-03", *folder)
    assert "restored" in capsys.readouterr().out
    call_command("archive", "--keep-months", "900", *folder)
    said = capsys.readouterr().out
    assert "Nothing to do: no month is older than the last 900 full months." in said
    with pytest.raises(CommandError, match="not in the archive"):
        call_command("archive", "--restore", "2020-01", *folder)


@pytest.mark.django_db(transaction=True)
def test_a_month_that_somebody_reads_is_waited_for_and_not_queued_before(
    march: Agent, tmp_path: Path
) -> None:
    """A lock that stops everybody is asked for in short attempts: who books meanwhile gets in."""
    reading, booked = threading.Event(), threading.Event()

    def read() -> None:
        with transaction.atomic():
            assert CostEvent.objects.count() == 21
            reading.set()
            assert booked.wait(30)
        connection.close()

    def write() -> None:
        assert reading.wait(30)
        with transaction.atomic(), connection.cursor() as cursor:
            # Would be waited for by a lock that waits itself for the reader above.
            cursor.execute("SET LOCAL lock_timeout = '5s'")
            for number in range(20):
                book(march, f"meanwhile {number}", 1)
        booked.set()
        connection.close()

    threads = [threading.Thread(target=work) for work in (read, write)]
    for thread in threads:
        thread.start()
    assert reading.wait(30)
    assert take(tmp_path).state == "dropped"
    for thread in threads:
        thread.join(30)
    assert booked.is_set()
    assert CostEvent.objects.count() == 21
    assert (
        archive.restore(table=TABLE, month=MARCH, folder=tmp_path, now=timezone.now()).state
        == "restored"
    )
    assert CostEvent.objects.count() == 41


def test_a_restored_month_has_its_references_and_guards_again(march: Agent, tmp_path: Path) -> None:
    take(tmp_path)
    archive.restore(table=TABLE, month=MARCH, folder=tmp_path, now=timezone.now())
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT contype, count(*) FROM pg_constraint "
            "WHERE conrelid = 'billing_costevent_2025_03'::regclass AND contype IN ('f', 'p') "
            "GROUP BY 1 ORDER BY 1"
        )
        assert cursor.fetchall() == [("f", 2), ("p", 1)]
    with pytest.raises(DatabaseError), transaction.atomic():
        CostEvent.objects.filter(occurred_at__lt=OLD + timedelta(days=5)).update(note="changed")
