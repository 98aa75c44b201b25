"""`manage.py audit`: prove that the activity log is what it was, or take its heads elsewhere."""

from __future__ import annotations

import json
import uuid
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db.models import Q
from django.utils import timezone

from billing import archive, archived_activity
from companies import chain, format, seals
from companies.errors import Refusal
from companies.models import Company


class Command(BaseCommand):
    help = "Prove that the activity log is what it was; print the heads of its chains."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        verify = verbs.add_parser("verify", help="name the first row that is not what it was")
        head = verbs.add_parser("head", help="each chain's last seal as JSON, to keep elsewhere")
        for verb in (verify, head):
            verb.add_argument("--company", metavar="ID_OR_PREFIX", help="only this company's chain")
        verify.add_argument(
            "--against", type=Path, metavar="FILE", help="heads that the chains must still contain"
        )
        verify.add_argument(
            "--archive",
            type=Path,
            nargs="?",
            const=archive.folder(),
            metavar="FOLDER",
            help="read the files of archived months, too (DATA_DIR/archive)",
        )
        verbs.add_parser("seal", help="seal now what has been committed")
        verbs.add_parser("adopt", help="go on after the database was moved to another server")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        try:
            if verb == "seal":
                told = format.count(
                    seals.advance(now=timezone.now(), steps=10**6, seconds=10**6), "row"
                )
                self.stdout.write(f"sealed {told}")
            elif verb == "adopt":
                told = format.count(seals.adopt(now=timezone.now()), "row")
                self.stdout.write(f"The chains go on here; sealed {told} that no seal had.")
            elif verb == "head":
                self._head(options["company"])
            else:
                self._verify(options["company"], options["against"], options["archive"])
        except (Refusal, archive.ArchiveError) as error:
            raise CommandError(str(error)) from error

    def _head(self, company: str | None) -> None:
        for head in chain.heads(_company(company).id if company else None):
            self.stdout.write(json.dumps(head))

    def _verify(self, company: str | None, against: Path | None, files: Path | None) -> None:
        wanted = [_company(company)] if company else list(Company.objects.order_by("issue_prefix"))
        ids = {str(each.id) for each in wanted}
        kept = list(_heads(against)) if against else []
        # A company that is gone is a head that is lost, unless another one was asked for.
        kept = [head for head in kept if not company or head["company"] in ids]
        broken = 0
        with chain.snapshot():
            months = archived_activity.months(files)
            for each in wanted:
                report = chain.verify(each.id, months)
                self.stdout.write(_told(each, report))
                if report.broken:
                    broken += 1
                    self.stderr.write(f"{each.issue_prefix}: {report.broken.told}")
            for head in kept:
                lost = chain.contains(head)
                if lost:
                    broken += 1
                    self.stderr.write(lost.told)
        if broken:
            raise CommandError(
                f"The activity log is not what it was: {broken} of its proofs failed."
            )
        if kept:
            self.stdout.write(
                f"ok  the chains contain {format.count(len(kept), 'head')} of the file"
            )


def _told(company: Company, report: chain.Report) -> str:
    parts = [
        f"{format.count(report.seals, 'seal')}",
        f"{format.count(report.proved, 'row')} proved",
    ]
    if report.filed:
        parts.append(f"{report.filed} of them in the archive's files")
    if report.archived:
        parts.append(f"{report.archived} counted as archived (--archive reads them)")
    if report.waiting:
        parts.append(f"{report.waiting} not sealed yet")
    return f"{'BAD' if report.broken else 'ok '}  {company.issue_prefix}: {', '.join(parts)}"


def _company(text: str) -> Company:
    wanted = Q(issue_prefix=text.upper())
    with suppress(ValueError):
        wanted |= Q(id=uuid.UUID(text))
    found = Company.objects.filter(wanted).first()
    if found is None:
        raise CommandError(f"There is no company {text}.")
    return found


def _heads(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file that `audit head` has written."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} cannot be read: {error}") from None
    for number, line in enumerate(filter(None, lines), 1):
        try:
            head = json.loads(line)
            uuid.UUID(head["company"])
            head["digest"] + "", head["sequence"] + 0
        except (ValueError, KeyError, TypeError, AttributeError):
            raise CommandError(f"{path}: line {number} is no head of a chain.") from None
        yield head
