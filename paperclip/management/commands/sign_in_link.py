"""`manage.py sign_in_link --email E`: a one-time address for somebody who is locked out."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from companies import sign_in
from companies.models import User
from paperclip import running
from paperclip.management import database


class Command(BaseCommand):
    help = "Prints an address that signs this operator in, once and within a day."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--email", required=True, help="The operator's e-mail address.")

    def handle(self, *args: Any, email: str, **options: Any) -> None:
        with database.present():
            user = User.objects.filter(email__iexact=email, is_active=True).first()
            if user is None:
                raise CommandError(f"There is no active operator {email}.")
            token = sign_in.make_link(user=user, now=timezone.now())
        self.stdout.write(f"{running.base_url()}/sign-in/{token}")
