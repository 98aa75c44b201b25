"""`manage.py load`: users who give agents tasks, and the table of how that went."""

import asyncio
import ipaddress
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone
from django.utils.module_loading import import_string

from companies import format, operator_keys
from companies.models import User
from paperclip import running
from paperclip.load import http, machine, provider, report, scenario
from paperclip.load.driver import Driver
from paperclip.management import database

MOST_USERS = 1_000
MOST_SECONDS = 3_600


class Command(BaseCommand):
    help = (
        "Puts a running instance under load: each user gives an agent a task, watches its answer"
        " stream in from a simulated model, waits a second, and starts again. Ctrl-C ends it early;"
        " what was seen until then is shown."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--url", default=running.base_url(), help="Where the product answers.")
        parser.add_argument(
            "--users", default="1,50,80", help="Stages: how many users each (1 to 1000)."
        )
        parser.add_argument("--ramp", type=float, default=5, help="Seconds until all are there.")
        parser.add_argument("--hold", type=float, default=30, help="Seconds that count.")
        parser.add_argument(
            "--driver",
            default="paperclip.load.ours.Paperclip",
            help="A class as paperclip/load/driver.py describes it, made with url and key.",
        )
        parser.add_argument(
            "--allow-remote",
            action="store_true",
            help="Also where the address is not this machine.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        stages = [_stage(word, options) for word in options["users"].split(",")]
        if not options["allow_remote"]:
            _check_loopback(options["url"])
        try:
            make = import_string(options["driver"])
        except ImportError as error:
            raise CommandError(f"--driver: {error}.") from None
        with database.present(), _key() as key:
            try:
                columns = asyncio.run(self._play(make(url=options["url"], key=key), stages))
            except (http.Unexpected, *http.BROKEN) as error:
                raise CommandError(f"{options['url']} does not take part: {error}") from None
        self.stdout.write(report.table(columns))
        failures = [text for outcome, _ in columns for text in outcome.failures]
        if failures:
            raise CommandError(
                f"{format.count(len(failures), 'task')} failed, the first: {failures[0]}"
            )

    async def _play(self, driver: Driver, stages: list[scenario.Stage]) -> list[report.Column]:
        columns: list[report.Column] = []
        stop = asyncio.Event()
        for signum in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(signum, stop.set)
        async with provider.running() as model:
            try:
                most = max(stage.users for stage in stages)
                self._say(f"making {format.count(most, 'agent')}")
                await driver.prepare(users=most, provider_url=model.url)
                for stage in stages:
                    if stop.is_set():
                        break
                    watch = machine.Watch(data_dir=settings.DATA_DIR, dsn=settings.DIRECT_DSN)
                    watch.start()
                    try:
                        outcome = await scenario.play(
                            stage, driver=driver, provider=model, say=self._say, stop=stop
                        )
                    finally:
                        use = await asyncio.to_thread(watch.stop)
                    columns.append((outcome, use))
            finally:
                await driver.clean_up()
        return columns

    def _say(self, text: str) -> None:
        self.stderr.write(text, ending="\n")


def _stage(word: str, options: dict[str, Any]) -> scenario.Stage:
    users = int(word) if word.strip().isdigit() else 0
    ramp, hold = options["ramp"], options["hold"]
    if not 1 <= users <= MOST_USERS:
        raise CommandError(f"--users: {word!r} is no number from 1 to {MOST_USERS}.")
    if not (0 <= ramp <= MOST_SECONDS and 1 <= hold <= MOST_SECONDS):
        raise CommandError(f"--ramp and --hold are seconds, at most {MOST_SECONDS}.")
    name = "cold, 1 user" if users == 1 else f"{users} users"
    return scenario.Stage(name, users, ramp, hold)


def _check_loopback(url: str) -> None:
    """Raises CommandError when `url` is not on this machine: a load is an attack elsewhere."""
    host = urlsplit(url).hostname or ""
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise CommandError(f"{url} cannot be reached: {error}.") from None
    if not all(ipaddress.ip_address(str(address)).is_loopback for address in found):
        raise CommandError(
            f"{url} is not on this machine. If that is yours to put under load, say --allow-remote."
        )


@contextmanager
def _key() -> Iterator[str]:
    """The key in PAPERCLIP_API_KEY, or one that lives as long as the load."""
    given = os.environ.get("PAPERCLIP_API_KEY", "")
    if given:
        yield given
        return
    user = User.objects.filter(is_superuser=True, is_active=True).order_by("created_at").first()
    if user is None:
        raise CommandError(
            "There is no operator; start the instance once, or set PAPERCLIP_API_KEY."
        )
    key, token = operator_keys.create(user=user, name="load", now=timezone.now())
    try:
        yield token
    finally:
        operator_keys.revoke(user=user, key_id=key.id, now=timezone.now())
