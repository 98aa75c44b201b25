"""`manage.py demo`: a simulated company with a past, for a first look without any key."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction
from django.utils import timezone

from companies import tenancy
from companies.activity import SYSTEM
from companies.models import Company, Membership, User
from paperclip.demo import stage
from paperclip.management import database


class Command(BaseCommand):
    help = (
        "Makes the demo company (or does nothing when there is one) and makes an operator its"
        " owner. Its agents are simulated: no model, no key, no cost."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--if-empty", action="store_true", help="Only when there is no company at all."
        )
        parser.add_argument(
            "--email", default="", help="Who shall own it; the first operator when left out."
        )

    def handle(self, *args: Any, if_empty: bool, email: str, **options: Any) -> None:
        with database.present():
            said = self._make(if_empty, email)
        if options["verbosity"] > 0:
            self.stdout.write(said)

    @transaction.atomic
    def _make(self, if_empty: bool, email: str) -> str:
        if if_empty and Company.objects.exists():
            return "There is a company already; nothing was made."
        owner = self._owner(email)
        now = timezone.now()
        demo = Company.objects.filter(is_demo=True).order_by("created_at", "id").first()
        if demo is None:
            demo = stage.play(owner=owner, now=now)
            return f"{demo.name} is ready; {owner} owns it."
        if not Membership.objects.filter(company=demo, user=owner).exists():
            tenancy.add_member(
                company=demo, user=owner, role=Membership.Role.OWNER, actor=SYSTEM, now=now
            )
            return f"{demo.name} was there already; {owner} owns it now as well."
        return f"{demo.name} was there already."

    def _owner(self, email: str) -> User:
        people = User.objects.filter(is_active=True).order_by("-is_superuser", "created_at", "id")
        owner = (people.filter(email__iexact=email) if email else people).first()
        if owner is None:
            raise CommandError(
                f"There is no active operator {email}."
                if email
                else "There is no operator yet; start the server once or name one with --email."
            )
        return owner
