"""`manage.py operator_key --email E`: a new personal API key, shown once."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from companies import operator_keys
from companies.errors import Refusal
from companies.models import User
from paperclip.management import database


class Command(BaseCommand):
    help = "Prints a new personal API key of an operator. It is shown only this once."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--email", required=True, help="The operator's e-mail address.")
        parser.add_argument("--name", default="command line", help="What the key is for.")

    def handle(self, *args: Any, email: str, name: str, **options: Any) -> None:
        with database.present():
            user = User.objects.filter(email__iexact=email, is_active=True).first()
            if user is None:
                raise CommandError(f"There is no active operator {email}.")
            try:
                _, token = operator_keys.create(user=user, name=name, now=timezone.now())
            except Refusal as refusal:
                raise CommandError(refusal.message) from None
        self.stdout.write(token)
