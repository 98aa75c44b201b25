"""`manage.py shift`: the loop that carries runs, in the foreground, as a process of its own."""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django.utils import timezone

from paperclip import fingerprints, running
from paperclip.engine import station


class Command(BaseCommand):
    help = "Carries queued runs until SIGTERM or Ctrl-C."
    requires_system_checks = []  # pages and addresses are nothing to it

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--capacity", type=int, default=None, help="Runs at the same time, at most."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            fingerprints.check(now=timezone.now())
        except fingerprints.OtherKey as error:
            raise CommandError(str(error)) from None
        connections.close_all()
        # What its runs are told to call. The instance beside it knows better than a bare shell.
        settings.BASE_URL = running.base_url()
        station.in_foreground(capacity=options["capacity"])
