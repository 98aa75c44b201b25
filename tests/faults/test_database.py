"""The database dies under twenty streams, on a server of the test's own."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, InterfaceError, connections

from agents.models import RunEvent
from companies import live
from paperclip import postgres
from tests import factories
from tests.faults import company as firm
from tests.faults.processes import Processes, reconnect, until

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(240)]


class OwnServer:
    """A PostgreSQL that a test may kill. What it has committed is safe, as in production."""

    def __init__(self, pg_dir: Path) -> None:
        self.pg_dir = pg_dir
        self.server = postgres.start(pg_dir)
        postgres.create_database(pg_dir, "paperclip")

    def end(self, signum: signal.Signals) -> None:
        process = self.server.process
        assert process is not None
        process.send_signal(signum)
        process.wait(30)
        self.server.stop()

    def start(self) -> None:
        self.server = postgres.start(self.pg_dir)


@pytest.fixture
def own_server(
    tmp_path: Path, django_db_blocker: Any, django_db_setup: None
) -> Iterator[OwnServer]:
    """Django's default connection leads to it for the time of the test."""
    made = OwnServer(tmp_path / "own-pg")
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


@pytest.fixture
def shifts(own_server: OwnServer, tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path)
    try:
        yield made
    finally:
        made.end()
        print(made.logs()[-5_000:])


def all_ended() -> bool:
    try:
        return firm.open_count() == 0 and firm.running() == 0
    except (DatabaseError, InterfaceError):
        reconnect()
        return False


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGQUIT])
def test_the_database_restarts_under_twenty_streams(
    own_server: OwnServer, shifts: Processes, signum: signal.Signals
):
    """Fast (SIGINT) and immediate (SIGQUIT, as a crash): all end, none twice."""
    acme = factories.company("Acme", "ACM", max_concurrent_agents=20)
    firm.give(firm.staff(acme, 20, pace=0.5), 20)
    for _ in range(2):
        shifts.shift()
    until(
        lambda: RunEvent.objects.filter(kind="text").values("run_id").distinct().count() == 20,
        60,
        what="twenty streams",
    )
    live.close()
    reconnect()
    own_server.end(signum)
    own_server.start()
    took = until(all_ended, 60, what="all ended", look=0.2)
    ends = firm.check_each_done_once_or_failed_visibly()
    assert ends["done"] >= 1
    assert took < 60
    assert len(shifts.logs()) < 200_000
