"""A PostgreSQL of a test's own, which it may kill, starve and take away."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.db import DatabaseError, InterfaceError, connections

from companies import live
from paperclip import postgres
from tests.faults.processes import reconnect


class OwnServer:
    """What it has committed is safe, as in production."""

    def __init__(self, pg_dir: Path) -> None:
        self.pg_dir = pg_dir
        self.server = postgres.start(pg_dir)
        postgres.create_database(pg_dir, "paperclip")

    def end(self, signum: signal.Signals) -> None:
        """SIGINT: a fast shutdown. SIGQUIT: an immediate one, as after a crash."""
        process = self.server.process
        assert process is not None
        process.send_signal(signum)
        process.wait(60)
        self.server.stop()

    def start(self) -> None:
        self.server = postgres.start(self.pg_dir)

    def restart(self, signum: signal.Signals) -> None:
        """End and start it, with Django's own connections out of the way."""
        live.close()
        reconnect()
        self.end(signum)
        self.start()

    @property
    def dsn(self) -> str:
        return postgres.dsn(self.pg_dir, "paperclip")


@contextmanager
def own_server(pg_dir: Path, django_db_blocker: Any) -> Iterator[OwnServer]:
    """Django's default connection leads to it for the time of the block."""
    made = OwnServer(pg_dir)
    settings = connections["default"].settings_dict
    before = {key: settings[key] for key in ("HOST", "NAME", "USER")}
    with django_db_blocker.unblock():
        live.close()
        connections.close_all()
        settings.update(
            HOST=str(postgres.socket_dir(made.pg_dir)), NAME="paperclip", USER=postgres.USER
        )
        try:
            call_command("migrate", verbosity=0)
            yield made
        finally:
            live.close()
            connections.close_all()
            settings.update(before)
            made.server.stop()


def patiently(ask: Any) -> Any:
    """`ask` as a condition that is not met while the database is away."""

    def asked() -> Any:
        try:
            return ask()
        except (DatabaseError, InterfaceError):
            reconnect()
            return False

    return asked
