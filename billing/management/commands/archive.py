"""`manage.py archive`: take old months of the big tables to files, or bring one back."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import date, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from billing import archive
from billing.models import ArchivedPartition
from companies import format
from companies.errors import Refusal


def month(text: str) -> date:
    return datetime.strptime(text, "%Y-%m").date()


class Command(BaseCommand):
    help = "Take old months of costs, run output and activity to files; list, verify, restore."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--keep-months", type=int, default=12, help="full months to keep (12)")
        parser.add_argument("--table", choices=sorted(archive.SUMS), help="only this table")
        parser.add_argument("--folder", type=Path, help="where the files are (DATA_DIR/archive)")
        parser.add_argument("--list", action="store_true", help="show the archive, change nothing")
        parser.add_argument("--verify", action="store_true", help="read every file and compare")
        parser.add_argument("--restore", type=month, metavar="YYYY-MM", help="bring a month back")

    def handle(self, *args: Any, **options: Any) -> None:
        folder = options["folder"] or archive.folder()
        entries = ArchivedPartition.objects.all()
        if options["table"]:
            entries = entries.filter(table=options["table"])
        try:
            if options["list"] or options["verify"]:
                for entry in entries:
                    if options["verify"] and entry.state == ArchivedPartition.State.DROPPED:
                        archive.verify(entry=entry, folder=folder)
                    self._show(entry)
                if not entries:
                    self.stdout.write("Nothing is archived.")
            elif options["restore"]:
                self._restore(options["restore"], options["table"], folder)
            else:
                self._archive(options["keep_months"], options["table"], folder)
        except (archive.ArchiveError, Refusal) as error:
            raise CommandError(str(error)) from error

    def _archive(self, keep_months: int, table: str | None, folder: Path) -> None:
        now = timezone.now()
        due = [
            (name, start)
            for name, start in archive.due(keep_months=keep_months, now=now)
            if table in (None, name)
        ]
        for name, start in due:
            self._show(archive.archive(table=name, month=start, folder=folder, now=now))
        if not due:
            months = format.count(keep_months, "full month")
            self.stdout.write(f"Nothing to do: no month is older than the last {months}.")

    def _restore(self, start: date, table: str | None, folder: Path) -> None:
        for name in [table] if table else sorted(archive.SUMS):
            entry = archive.restore(table=name, month=start, folder=folder, now=timezone.now())
            self._show(entry)

    def _show(self, entry: ArchivedPartition) -> None:
        self.stdout.write(
            f"{entry.state:9} {entry.table} {entry.month:%Y-%m}  {entry.rows} rows  "
            f"{entry.sha256[:12]}  {entry.file}"
        )
