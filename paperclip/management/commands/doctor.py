"""`manage.py doctor`: what stands, what does not, and what to do about it."""

from collections.abc import Callable, Iterator
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from companies import format, secrets
from paperclip import fingerprints
from paperclip.boot import OLDEST_POSTGRES
from paperclip.engine import spool
from paperclip.management import database
from paperclip.scaling import checklist

Finding = tuple[bool, str]


class Command(BaseCommand):
    help = "Checks this instance: settings, data folder, database, background work."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--scaling", action="store_true", help="Also: does it still fit? As the page /scaling."
        )

    def handle(self, *args: Any, scaling: bool, **options: Any) -> None:
        with database.present():
            findings = [finding for check in CHECKS for finding in check()]
            groups = checklist.groups() if scaling else []
        for good, text in findings:
            self.stdout.write(f"  {'ok  ' if good else 'FAIL'}  {text}")
        for group in groups:
            self.stdout.write(f"\n{group.name}")
            for reading in group.readings:
                self.stdout.write(f"  {reading.level.word:<4}  {reading.name}: {reading.value}")
                if reading.fix:
                    self.stdout.write(f"        {reading.why} {reading.fix}")
        failed = sum(not good for good, _ in findings)
        if failed:
            raise CommandError(f"{failed} of {len(findings)} checks failed.")


def _data_folder() -> Iterator[Finding]:
    mode = settings.DATA_DIR.stat().st_mode & 0o777
    yield not mode & 0o066, f"data folder {settings.DATA_DIR} is private (mode {mode:o})"
    key = settings.DATA_DIR / "secret-key"
    if key.exists():
        mode = key.stat().st_mode & 0o777
        yield mode == 0o600, f"the kept secret key is readable by its owner only (mode {mode:o})"


def _database() -> Iterator[Finding]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version'), current_setting('fsync')")
        version, fsync = cursor.fetchone()
        major = int(version.split(".")[0])
        where = settings.DATABASES["default"]["HOST"] or "the default socket"
        yield major >= OLDEST_POSTGRES, f"PostgreSQL {version} at {where}"
        yield fsync == "on", f"committed work survives a power cut (fsync {fsync})"
    executor = MigrationExecutor(connection)
    waiting = executor.migration_plan(executor.loader.graph.leaf_nodes())
    yield not waiting, f"{len(waiting)} migrations wait"


def _background() -> Iterator[Finding]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM django_q_ormq")
        queued = cursor.fetchone()[0]
        yield queued < 1000, f"{queued} background tasks wait"
        cursor.execute(
            "SELECT round(extract(epoch FROM now() - max(beat_at)))::int FROM agents_beacon"
        )
        age = cursor.fetchone()[0]
        if age is not None:
            yield age < 180, f"background tasks are carried out: the last canary {age} s ago"
        cursor.execute("SELECT count(*) FROM agents_worker WHERE lease_expires_at > now()")
        shifts = cursor.fetchone()[0]
        yield shifts > 0, f"runs are carried by {format.count(shifts, 'shift')}"


def _keys() -> Iterator[Finding]:
    try:
        fingerprints.check(now=timezone.now())
        yield True, "the secret key is the one that this database is used with"
    except fingerprints.OtherKey as error:
        yield False, str(error)
    lost = secrets.unopenable()
    yield not lost, f"{lost} stored secrets cannot be opened with the keys of this instance"


def _receipts() -> Iterator[Finding]:
    aside = len(spool.set_aside())
    yield not aside, f"{len(spool.waiting())} receipts wait to be booked, {aside} are set aside"


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    _data_folder,
    _database,
    _keys,
    _background,
    _receipts,
)
