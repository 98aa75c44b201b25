"""Reports read the replica, and nobody ever reads behind their own writes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, connections, transaction
from django.http import HttpRequest
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext

from agents.models import Agent
from billing import budgets, replica, reports
from billing.models import Budget, Spend
from companies import activity, live
from companies.models import Company, User
from paperclip import postgres
from tests import factories
from tests.api.conftest import Caller, operator
from tests.billing import streaming
from tests.billing.receipts import book
from tests.house.instance import wait_for


@pytest.fixture(scope="module")
def both(django_db_setup: None, django_db_blocker: Any) -> Iterator[streaming.Pair]:
    """The servers, in place of the tests' own one: `default` and `replica`."""
    with (
        django_db_blocker.unblock(),
        streaming.pair() as servers,
        pytest.MonkeyPatch.context() as patch,
    ):
        own, known = connections["default"], dict(connections.databases)
        live.close()
        for alias, place in (("default", servers.primary), (replica.ALIAS, servers.standby)):
            address = {"HOST": str(postgres.socket_dir(place)), "USER": postgres.USER, "PORT": ""}
            connections.databases[alias] = (
                known["default"]
                | address
                | {"NAME": streaming.DATABASE, "TEST": known["default"]["TEST"]}
            )
            connections[alias] = connections.create_connection(alias)
        patch.setattr(settings, "DATABASE_ROUTERS", ["billing.replica.Router"])
        patch.setattr(settings, "MIDDLEWARE", [*settings.MIDDLEWARE, "billing.replica.middleware"])
        with django_db_blocker.unblock():
            _route()
            try:
                yield servers
            finally:
                live.close()
                for alias in ("default", replica.ALIAS):
                    connections[alias].close()
                connections["default"] = own
                connections.databases.clear()
                connections.databases.update(known)
                del connections[replica.ALIAS]
    _route()


def _route() -> None:
    """Django reads its routers once."""
    from django.db import router

    router.__dict__.pop("routers", None)
    router._routers = None


pytestmark = pytest.mark.timeout(300)  # two servers start for the first of them


@pytest.fixture
def acme(both: streaming.Pair) -> Iterator[Company]:
    replica._known.clear()
    owner = factories.user("Olga")
    company = factories.company("Acme", "ACM", owner=owner)
    yield company
    both.resume()
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE companies_company, companies_user CASCADE")
    replica._known.clear()


@pytest.fixture
def books_agree() -> None:
    """Not here: another database."""


@pytest.fixture
def ada(acme: Company) -> Agent:
    return factories.agent(acme, "Ada")


@pytest.fixture
def olgas(acme: Company, both: streaming.Pair) -> Client:
    client = Client()
    client.force_login(User.objects.get(name="Olga"))
    both.catch_up()
    return client


def page(client: Client) -> str:
    replica._known.clear()  # a second later
    answer = client.get("/c/ACM/costs/")
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def request() -> HttpRequest:
    return RequestFactory().get("/")


def test_a_report_is_read_from_the_replica_and_says_so(
    both: streaming.Pair, ada: Agent, olgas: Client
) -> None:
    book(ada, "k", 1_230_000)
    both.catch_up()
    with CaptureQueriesContext(connections[replica.ALIAS]) as there:
        text = page(olgas)
    assert "$1.23" in text
    assert "Read from a replica, 0.0 s behind." in text
    assert any("billing_daycost" in query["sql"] for query in there)


def test_the_primary_is_not_asked_for_what_the_replica_knows(
    both: streaming.Pair, ada: Agent, olgas: Client
) -> None:
    both.catch_up()
    with CaptureQueriesContext(connection) as here:
        page(olgas)
    asked = [query["sql"] for query in here]
    assert not any("billing_daycost" in sql or "billing_spend" in sql for sql in asked)


def test_a_session_reads_its_own_write_although_the_replica_has_not_got_it(
    both: streaming.Pair, acme: Company, olgas: Client
) -> None:
    both.pause()
    form = {
        "whose": f"company:{acme.id}",
        "limit": "7.77",
        "window": "month",
        "warn_percent": "80",
        "is_hard": "on",
    }
    assert olgas.post("/c/ACM/costs/budgets", form).status_code == 302
    assert both.on_standby("SELECT count(*) FROM billing_budget") == 0
    text = page(olgas)
    assert "$7.77" in text
    assert "Read from the primary: the replica does not have your last change yet." in text
    both.resume()
    both.catch_up()
    text = page(olgas)
    assert "$7.77" in text
    assert "Read from a replica" in text


def test_who_has_written_nothing_may_be_a_moment_behind(
    both: streaming.Pair, ada: Agent, olgas: Client
) -> None:
    both.pause()
    book(ada, "k", 4_560_000)
    assert "$4.56" not in page(olgas)
    both.resume()
    both.catch_up()
    assert "$4.56" in page(olgas)


def test_a_replica_that_is_too_far_behind_is_not_read(
    both: streaming.Pair, ada: Agent, olgas: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "MAX_LAG_SECONDS", 0.2)
    both.pause()
    time.sleep(0.3)
    book(ada, "k", 4_560_000)
    # This server's log comes to the disk, and so to the standby, some moments after the commit.
    behind = "Read from the primary: the replica is too far behind."
    assert wait_for(lambda: behind in page(olgas))
    assert "$4.56" in page(olgas)


def test_a_replica_that_is_idle_is_not_behind(both: streaming.Pair, acme: Company) -> None:
    both.catch_up()
    time.sleep(0.3)
    seen = replica.look()
    assert seen is not None
    assert seen.lag_seconds == 0


def test_a_replica_that_is_away_is_left_alone_and_found_again(
    both: streaming.Pair, olgas: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = connections[replica.ALIAS]
    gone.close()
    monkeypatch.setitem(gone.settings_dict, "HOST", "/nowhere")
    text = page(olgas)
    assert "Read from the primary: the replica does not answer." in text
    monkeypatch.undo()
    both.catch_up()
    assert "Read from a replica" in page(olgas)


def test_a_query_that_the_replica_breaks_off_is_asked_of_the_primary(
    both: streaming.Pair, ada: Agent, olgas: Client
) -> None:
    """As a standby does when what it must replay takes away what the query reads."""
    both.catch_up()
    replica._known.clear()
    calls = []

    def work() -> int:
        calls.append(replica.alias())
        with connections[replica.alias()].cursor() as cursor:
            if replica.alias() == replica.ALIAS:
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
            cursor.execute("SELECT 7")
            return int(cursor.fetchone()[0])

    found, source = replica.reading(request(), work)
    assert (found, calls) == (7, ["replica", "default"])
    assert source.behind_seconds is None


def test_a_transaction_reads_what_it_has_written(both: streaming.Pair, acme: Company) -> None:
    both.catch_up()
    with transaction.atomic():
        budgets.set_limit(
            company=acme,
            scope="company",
            scope_id=acme.id,
            limit_micros=5,
            actor=activity.SYSTEM,
        )
        count, source = replica.reading(request(), Budget.objects.count)
    assert (count, source.behind_seconds) == (1, None)


def test_writes_never_go_to_the_replica(both: streaming.Pair, ada: Agent) -> None:
    both.catch_up()

    def work() -> Any:
        Spend.objects.filter(scope_id=ada.id).update(events=0)
        return reports.by_agent(company_id=ada.company_id, now=ada.created_at)

    with CaptureQueriesContext(connection) as here:
        replica.reading(request(), work)
    assert any(query["sql"].startswith("UPDATE") for query in here)


@pytest.mark.parametrize(
    "cookie", ["x", "0/", "FFFFFFFF/FFFFFFFF", "1/2/3", "'; DROP", "0/" + "F" * 9]
)
def test_a_cookie_that_is_made_up_costs_nobody_but_its_owner(
    both: streaming.Pair, olgas: Client, cookie: str
) -> None:
    olgas.cookies[replica.COOKIE] = cookie
    assert "Read from the primary" in page(olgas)


def test_the_position_is_that_of_the_log(both: streaming.Pair, olgas: Client) -> None:
    olgas.post("/c/ACM/costs/budgets", {})
    position = replica.number(olgas.cookies[replica.COOKIE].value)
    assert position is not None
    both.catch_up()
    reached = f"SELECT pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0') >= {position}"
    assert wait_for(lambda: both.on_standby(reached) is True)


@pytest.fixture
def program(acme: Company, both: streaming.Pair) -> Caller:
    """Olga's program, with her key and without a cookie."""
    caller = operator(User.objects.get(name="Olga"))
    both.catch_up()
    return caller


def spent(program: Caller, company: Company) -> int:
    program.cookies.clear()
    answer = program.send("GET", f"/api/companies/{company.id}/costs/summary")
    return int(answer.json()["spendMicros"])


def test_a_programs_report_is_read_from_a_replica_that_has_everything(
    both: streaming.Pair, acme: Company, ada: Agent, program: Caller
) -> None:
    book(ada, "k", 1_230_000)

    def is_read_there() -> bool:
        both.catch_up()
        with CaptureQueriesContext(connections[replica.ALIAS]) as there:
            assert spent(program, acme) == 1_230_000
        return any("billing_spend" in query["sql"] for query in there)

    assert wait_for(is_read_there)  # not while its key's last use is on its way there


def test_a_program_that_keeps_no_cookie_reads_its_own_write(
    both: streaming.Pair, acme: Company, ada: Agent, program: Caller
) -> None:
    both.pause()
    body = {"agentId": str(ada.id), "provider": "p", "model": "m", "costMicros": 4_560_000}
    assert program.send("POST", f"/api/companies/{acme.id}/cost-events", body).status_code == 201
    assert spent(program, acme) == 4_560_000
    both.resume()


@pytest.mark.django_db
def test_without_a_replica_everything_is_the_primarys() -> None:
    assert replica.number("0/1A") == 26
    assert replica.alias() == "default"
