"""`manage.py billing_check`: prove that ledger, totals and runs agree to the micro-dollar."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from billing import audit
from companies import format


class Command(BaseCommand):
    help = "Prove that the ledger, the running totals and the runs agree to the micro-dollar."

    def handle(self, *args: Any, **options: Any) -> None:
        drifts = audit.drifts()
        for drift in drifts:
            self.stderr.write(f"{drift.check}: {drift.where}: {drift.ledger} against {drift.total}")
        for alarm in audit.alarms():
            self.stderr.write(f"alarm: {alarm}")
        if drifts:
            raise CommandError(f"The books disagree in {format.count(len(drifts), 'place')}.")
        for check in audit.CHECKS:
            self.stdout.write(f"ok  {check}")
