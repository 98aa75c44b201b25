"""`manage.py reset_second_factor --email E`: for an operator whose authenticator and recovery codes
are lost."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from companies import second_factor
from companies.activity import SYSTEM
from companies.models import User
from paperclip.management import database


class Command(BaseCommand):
    help = "Takes the second factor from this operator, who can then set up a new one."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--email", required=True, help="The operator's e-mail address.")

    def handle(self, *args: Any, email: str, **options: Any) -> None:
        with database.present():
            user = User.objects.filter(email__iexact=email).first()
            if user is None:
                raise CommandError(f"There is no operator {email}.")
            was_on = second_factor.remove(user=user, actor=SYSTEM, now=timezone.now())
        if was_on:
            self.stdout.write(f"No code is asked of {user.email} any more.")
        else:
            self.stdout.write(f"{user.email} has no second factor.")
