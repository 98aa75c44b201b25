"""`manage.py accept_key`: this instance's keys are the ones that the database is used with now."""

from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from paperclip import fingerprints


class Command(BaseCommand):
    help = "Accepts this instance's SECRET_KEY where another one was used before and is lost."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        names = fingerprints.accept(now=timezone.now())
        are = "is" if len(names) == 1 else "are"
        self.stdout.write(
            f"{' and '.join(names)} of this instance {are} used from now on; the other instances"
            " need the same. Secrets that were sealed with another key have to be stored again."
        )
