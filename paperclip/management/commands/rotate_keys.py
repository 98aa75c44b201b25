"""`manage.py rotate_keys`: a new key for all that is sealed, while everything runs."""

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from companies import format, keyring, rotation
from companies.errors import Refusal
from companies.models import SealingKey
from paperclip import fingerprints
from paperclip.management import database

PASSES, PAUSE_SECONDS = 300, 0.2  # how long rows that others hold are waited for


class Command(BaseCommand):
    help = "Makes a new sealing key and wraps all stored secrets by it; safe while instances run."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--dry-run", action="store_true", help="Say what is sealed by which key, do nothing."
        )
        parser.add_argument(
            "--retire",
            action="store_true",
            help="Delete old keys that nothing is sealed by; does not rotate.",
        )
        parser.add_argument(
            "--batch", type=int, default=rotation.ROWS, help="Values of one transaction (100)."
        )

    def handle(self, *args: Any, dry_run: bool, retire: bool, batch: int, **options: Any) -> None:
        if not 1 <= batch <= 10_000:
            raise CommandError("A batch has 1 to 10,000 values.")
        with database.present():
            try:
                if dry_run:
                    self._tell()
                    return
                fingerprints.check(now=timezone.now())
                if retire:
                    self._retire()
                else:
                    self._rotate(batch)
            except (fingerprints.OtherKey, Refusal) as error:
                raise CommandError(str(error)) from None
            except keyring.CannotOpen:
                raise CommandError(
                    "A sealing key was wrapped by a SECRET_KEY that is not known here: name it in"
                    " SECRET_KEY_FALLBACKS. Nothing was changed."
                ) from None

    def _tell(self) -> None:
        keys = SealingKey.objects.count()
        self.stdout.write(f"{format.count(keys, 'sealing key')}")
        for count in rotation.counts():
            self.stdout.write(
                f"{count.place}: {count.done + count.left} sealed, {count.left} of them not by the"
                " current key; a rotation wraps them all"
            )

    def _rotate(self, batch: int) -> None:
        row, is_new = rotation.begin(now=timezone.now())
        how = "is current now" if is_new else "is current already: its rotation goes on"
        self.stdout.write(f"key {row.id} {how}")
        lost = {place.name: self._wrap(place, row, batch) for place in rotation.PLACES}
        if rotation.finish(row, now=timezone.now()):
            self.stdout.write("done; `rotate_keys --retire` deletes the old keys")
            return
        told = ", ".join(f"{count} of the {name}" for name, count in lost.items() if count)
        raise CommandError(
            f"{told or 'Some values'} cannot be opened with the keys of this instance and stay as"
            " they are: name the SECRET_KEY that they were sealed with in SECRET_KEY_FALLBACKS and"
            " run this again, or store them anew."
        )

    def _wrap(self, place: rotation.Place, row: SealingKey, batch: int) -> int:
        """Over a place until nothing is left that could be done; how many nobody can open."""
        done = 0
        for _ in range(PASSES):
            lost = 0
            for step in rotation.passes(place, row, rows=batch):
                done, lost = done + step.wrapped, lost + len(step.lost)
                self.stdout.write(f"{place.name}: {done} wrapped")
                self.stdout.flush()
            left = next(count.left for count in rotation.counts() if count.place == place.name)
            if left <= lost or rotation.is_over(row):
                return lost
            time.sleep(PAUSE_SECONDS)  # somebody holds a row
        return lost

    def _retire(self) -> None:
        for old in rotation.retire():
            if old.used:
                self.stdout.write(f"key {old.key_id} stays: it still seals {old.used}")
            else:
                self.stdout.write(f"key {old.key_id} is deleted")
