"""The pages about money, as people use them: without JavaScript, in their role and company."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from agents.models import Agent, HeartbeatRun
from billing import audit, budgets, ledger, reservations
from billing.models import (
    ArchivedPartition,
    Budget,
    BudgetIncident,
    CostEvent,
    ModelPrice,
    Reservation,
    Scope,
    Spend,
    Window,
)
from companies import activity, partitions
from companies.models import Activity, Company, User
from issues.models import Issue
from tests import factories
from tests.billing.receipts import book
from tests.billing.test_reservations import ask, known_price  # noqa: F401

USD = 1_000_000


@pytest.fixture
def olgas(olga: User, acme: Company) -> Client:
    client = Client()
    client.force_login(olga)
    return client


@pytest.fixture
def oscars(oscar: User, globex: Company) -> Client:
    client = Client()
    client.force_login(oscar)
    return client


@pytest.fixture
def veras(vera: User) -> Client:
    client = Client()
    client.force_login(vera)
    return client


def text(answer: Any) -> str:
    assert answer.status_code == 200, answer.status_code
    return " ".join(answer.content.decode().split())


def limit(company: Company, usd: float, **fields: Any) -> Budget:
    return budgets.set_limit(
        **{
            "company": company,
            "scope": Scope.COMPANY,
            "scope_id": company.id,
            "limit_micros": int(usd * USD),
            "actor": activity.SYSTEM,
            **fields,
        }
    )


# --- decisions about incidents ---------------------------------------------------------------


@pytest.fixture
def incident(acme: Company, ada: Agent) -> BudgetIncident:
    limit(acme, 1)
    book(ada, "k", 1 * USD)
    return BudgetIncident.objects.get(percent=100)


def test_a_passed_budget_asks_for_a_decision(olgas: Client, incident: BudgetIncident) -> None:
    page = text(olgas.get("/c/ACM/costs/"))
    assert "Waiting for a decision" in page
    assert "Acme: the month budget of $1.00 had $1.00 spent" in page


def test_seen_is_remembered_with_who_saw_it(olgas: Client, incident: BudgetIncident) -> None:
    assert olgas.post(f"/c/ACM/costs/incidents/{incident.id}/acknowledge").status_code == 302
    incident.refresh_from_db()
    assert incident.state == BudgetIncident.State.ACKNOWLEDGED
    assert f"seen by {incident.decided_by}" in text(olgas.get("/c/ACM/costs/"))


def test_raising_lets_the_agents_go_on_at_once(
    olgas: Client, incident: BudgetIncident, ada: Agent
) -> None:
    assert ada.holds.filter(reason="company_budget").exists()
    olgas.post(f"/c/ACM/costs/incidents/{incident.id}/raise", {"limit": "2.50"})
    assert Budget.objects.get().limit_micros == 2_500_000
    assert not ada.holds.filter(reason="company_budget").exists()
    assert "Waiting for a decision" not in text(olgas.get("/c/ACM/costs/"))


@pytest.mark.parametrize("amount", ["", "1", "0.5", "-3", "NaN", "1e400", "9" * 30])
def test_a_limit_that_is_no_raise_changes_nothing(
    olgas: Client, incident: BudgetIncident, amount: str
) -> None:
    answer = olgas.post(f"/c/ACM/costs/incidents/{incident.id}/raise", {"limit": amount})
    assert answer.status_code == 302
    assert Budget.objects.get().limit_micros == 1 * USD
    incident.refresh_from_db()
    assert incident.state == BudgetIncident.State.OPEN


def test_keeping_the_limit_answers_it(olgas: Client, incident: BudgetIncident, ada: Agent) -> None:
    olgas.post(f"/c/ACM/costs/incidents/{incident.id}/keep")
    incident.refresh_from_db()
    assert (incident.state, incident.resolution) == ("resolved", "kept_paused")
    assert ada.holds.filter(reason="company_budget").exists()


@pytest.mark.parametrize("verb", ["acknowledge", "raise", "keep"])
def test_only_who_may_decides(
    veras: Client, oscars: Client, incident: BudgetIncident, verb: str
) -> None:
    path = f"costs/incidents/{incident.id}/{verb}"
    assert veras.post(f"/c/ACM/{path}", {"limit": "5"}).status_code == 403
    assert oscars.post(f"/c/ACM/{path}", {"limit": "5"}).status_code == 404
    assert oscars.post(f"/c/GLO/{path}", {"limit": "5"}).status_code == 404
    incident.refresh_from_db()
    assert incident.state == BudgetIncident.State.OPEN


# --- what is kept for lost runs --------------------------------------------------------------


@pytest.fixture
def lost(ada: Agent, known_price: None) -> Reservation:  # noqa: F811
    """A call of 40 micro-dollars whose run was lost."""
    now = timezone.now()
    run = factories.running(ada)
    ask(run, 40, now=now)
    HeartbeatRun.objects.filter(id=run.id).update(status="lost", code="lost", finished_at=now)
    reservations.sweep(now=now)
    return Reservation.objects.get(state="unknown")


def test_what_is_kept_for_a_lost_run_is_shown_until_somebody_decides(
    olgas: Client, lost: Reservation
) -> None:
    assert "1 lost call" in text(olgas.get("/c/ACM/costs/"))
    assert "Lost, no receipt" in text(olgas.get("/c/ACM/costs/kept"))
    assert "unknown,Ada,m,0.000040" in olgas.get("/c/ACM/costs/kept.csv").content.decode()


def test_releasing_frees_what_was_kept(olgas: Client, lost: Reservation) -> None:
    olgas.post(f"/c/ACM/costs/kept/{lost.id}/release")
    lost.refresh_from_db()
    assert (lost.state, lost.open_micros) == ("released", 0)
    assert not Spend.objects.filter(reserved_micros__gt=0).exists()
    assert not CostEvent.objects.exists()


def test_booking_writes_what_the_provider_says_in_the_period_of_the_grant(
    olgas: Client, lost: Reservation
) -> None:
    olgas.post(f"/c/ACM/costs/kept/{lost.id}/book", {"cost": "0.000025"})
    lost.refresh_from_db()
    event = CostEvent.objects.get()
    assert (lost.state, lost.settled_micros, lost.open_micros) == ("settled", 25, 0)
    assert (event.cost_micros, event.occurred_at, event.model) == (25, lost.granted_at, "m")
    assert Activity.objects.filter(action="reservation.booked").exists()


def test_it_is_decided_once(olgas: Client, lost: Reservation) -> None:
    for _ in range(2):
        olgas.post(f"/c/ACM/costs/kept/{lost.id}/book", {"cost": "0.000025"})
    olgas.post(f"/c/ACM/costs/kept/{lost.id}/release")
    assert CostEvent.objects.count() == 1
    assert Spend.objects.filter(spent_micros=25).count() == 6


def test_a_receipt_that_comes_after_the_decision_is_booked_as_well(
    olgas: Client, lost: Reservation, ada: Agent
) -> None:
    """The ledger refuses no receipt; who booked by hand corrects what is now there twice."""
    olgas.post(f"/c/ACM/costs/kept/{lost.id}/book", {"cost": "0.000025"})
    book(ada, ledger.run_key(lost.run_id, 1), 25, run_id=lost.run_id)
    assert CostEvent.objects.count() == 2


@pytest.mark.parametrize("cost", ["", "-1", "NaN", "Infinity", "1e30", "ten"])
def test_a_cost_that_cannot_be_books_nothing(olgas: Client, lost: Reservation, cost: str) -> None:
    assert olgas.post(f"/c/ACM/costs/kept/{lost.id}/book", {"cost": cost}).status_code == 302
    lost.refresh_from_db()
    assert lost.state == "unknown"
    assert not CostEvent.objects.exists()


@pytest.mark.parametrize("verb", ["book", "release"])
def test_strangers_and_viewers_decide_nothing(
    veras: Client, oscars: Client, lost: Reservation, verb: str
) -> None:
    path = f"costs/kept/{lost.id}/{verb}"
    assert veras.post(f"/c/ACM/{path}", {"cost": "1"}).status_code == 403
    assert oscars.post(f"/c/GLO/{path}", {"cost": "1"}).status_code == 404
    lost.refresh_from_db()
    assert lost.state == "unknown"


# --- limits ----------------------------------------------------------------------------------


@pytest.mark.parametrize("window", ["run", "day", "month", "lifetime"])
def test_a_limit_can_be_for_one_run_a_day_a_month_or_all(
    olgas: Client, acme: Company, window: str
) -> None:
    form = {"whose": f"company:{acme.id}", "limit": "3", "window": window, "warn_percent": "80"}
    assert olgas.post("/c/ACM/costs/budgets", form | {"is_hard": "on"}).status_code == 302
    assert Budget.objects.get().window == window


def test_a_token_limit_is_set_on_the_page_and_shown(
    olgas: Client, acme: Company, ada: Agent
) -> None:
    form = {
        "whose": f"agent:{ada.id}",
        "limit": "100",
        "window": "month",
        "warn_percent": "80",
        "is_hard": "on",
        "limit_tokens": "1000",
    }
    assert olgas.post("/c/ACM/costs/budgets", form).status_code == 302
    book(ada, "k", 0, usage_input_tokens=990, usage_output_tokens=10)
    assert ada.holds.filter(reason="agent_budget").exists()
    assert "1.0k of 1.0k tokens" in text(olgas.get("/c/ACM/costs/"))


def test_one_run_has_no_token_limit_and_the_form_says_so(olgas: Client, acme: Company) -> None:
    form = {"whose": f"company:{acme.id}", "limit": "3", "window": "run", "warn_percent": "80"}
    answer = olgas.post("/c/ACM/costs/budgets", form | {"limit_tokens": "5"})
    assert answer.status_code == 422
    assert "One run has no token limit." in answer.content.decode()


# --- forecast, estimate, unusual days --------------------------------------------------------


def days_of_spend(agent: Agent, *dollars: float) -> None:
    """So many dollars on the last days, today last."""
    now = timezone.now()
    for back, amount in enumerate(reversed(dollars)):
        day = now - timedelta(days=back)
        partitions.ensure("billing_costevent", now=day, ahead=0)
        book(agent, f"day{back}", int(amount * USD), occurred_at=day, now=now)


def test_the_forecast_has_a_band(olgas: Client, ada: Agent) -> None:
    days_of_spend(ada, 1, 2, 3, 2, 1, 1)
    assert "four times in five" in text(olgas.get("/c/ACM/costs/"))


def test_the_page_says_how_long_the_budget_lasts(olgas: Client, acme: Company, ada: Agent) -> None:
    limit(acme, 100)
    days_of_spend(ada, 1, 2, 3, 2, 1, 1)
    assert "lasts" in text(olgas.get("/c/ACM/costs/"))


def test_a_day_that_cost_far_more_is_marked(olgas: Client, ada: Agent) -> None:
    days_of_spend(ada, *[1.0] * 20, 30.0)
    assert "Far more than in the two weeks before" in text(olgas.get("/c/ACM/costs/"))


def test_an_estimate_stands_beside_its_hit_rate(
    olgas: Client, acme: Company, ada: Agent, bo: Agent
) -> None:
    now = timezone.now()
    for number in range(8):
        done = factories.issue(acme, assignee=ada, status=Issue.Status.DONE)
        Issue.objects.filter(id=done.id).update(completed_at=now - timedelta(days=9 - number))
        book(ada, f"i{number}", (number % 3 + 1) * 100_000, issue_id=done.id)
    wanted = factories.issue(acme)
    page = text(olgas.get(f"/c/ACM/costs/estimate?issue=ACM-{wanted.number}"))
    assert "$0.20" in page
    assert "8 issues" in page
    assert " %</td>" in page
    assert "has finished too few issues to say" in page  # Bo


def test_the_first_days_of_a_company_are_not_unusual(olgas: Client, ada: Agent) -> None:
    days_of_spend(ada, 1.0, 2.0, 3.0)
    assert "Far more than" not in text(olgas.get("/c/ACM/costs/"))


@pytest.mark.parametrize("wanted", ["GLO-1", "ACM-999", "ACM-", "x", "ACM-²", "9" * 40, "%00"])
def test_an_estimate_knows_only_the_companys_issues(
    olgas: Client, globex: Company, wanted: str
) -> None:
    factories.issue(globex)
    assert "There is no issue" in text(olgas.get("/c/ACM/costs/estimate", {"issue": wanted}))


# --- the provider's bill ---------------------------------------------------------------------


def upload(client: Client, content: bytes, **fields: Any) -> Any:
    file = SimpleUploadedFile("usage.csv", content, content_type="text/csv")
    form = {"provider": "openrouter", "file": file, **fields}
    return client.post("/c/ACM/costs/bill/compare", form)


def test_a_bill_that_agrees_is_said_to(olgas: Client, ada: Agent) -> None:
    book(ada, "k", 1_250_000)
    today = timezone.now().date().isoformat()
    page = text(upload(olgas, f"date,model,cost\n{today},made-up-1,1.25\n".encode()))
    assert "Nowhere: the bill and the books agree." in page


def test_a_drift_is_shown_by_day_and_model_and_as_csv(olgas: Client, ada: Agent) -> None:
    book(ada, "k", 1_000_000)
    today = timezone.now().date().isoformat()
    bill = f"date,model,cost\n{today},made-up-1,1.25\n{today},=cmd(),0.5\n".encode()
    assert "$0.75" in text(upload(olgas, bill))
    lines = upload(olgas, bill, **{"as": "csv"}).content.decode().splitlines()
    assert f"{today},made-up-1,1.250000,1.000000,0.250000" in lines
    assert f"{today},'=cmd(),0.500000,0.000000,0.500000" in lines


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe\x00", b"a,b\n1,2\n", b"date,model,cost\nsoon,m,1\n", b"\x00" * 50]
)
def test_a_file_that_is_no_bill_is_refused_in_words(olgas: Client, content: bytes) -> None:
    answer = upload(olgas, content)
    assert answer.status_code in (200, 422)
    assert b"error" in answer.content or b"no lines" in answer.content


# --- prices ----------------------------------------------------------------------------------


def test_a_price_has_cache_rates_a_provider_and_a_day(olgas: Client, acme: Company) -> None:
    form = {
        "model": "house-7b",
        "provider": "Ollama",
        "per_input": "0.2",
        "per_output": "0.8",
        "per_cache_read": "0.02",
        "per_cache_write": "",
        "effective_on": "2026-01-31",
    }
    assert olgas.post("/c/ACM/costs/prices/set", form).status_code == 302
    row = ModelPrice.objects.get()
    assert (row.provider, row.input_pico, row.cache_read_pico, row.cache_write_pico) == (
        "ollama",
        200_000,
        20_000,
        None,
    )
    assert f"{row.effective_at:%Y-%m-%d}" == "2026-01-31"
    page = text(olgas.get("/c/ACM/costs/prices?q=house"))
    assert "31 Jan 2026" in page
    assert "yours" in page
    csv = olgas.get("/c/ACM/costs/prices.csv").content.decode()
    assert "house-7b,ollama,0.200000,0.800000,0.020000,," in csv


def test_any_model_can_be_looked_up(olgas: Client) -> None:
    assert "claude" in text(olgas.get("/c/ACM/costs/prices?q=claude-sonnet"))
    assert "No list knows" in text(olgas.get("/c/ACM/costs/prices?q=no-such-model"))


# --- the archive -----------------------------------------------------------------------------


@pytest.fixture
def due(db: None) -> Any:
    old = timezone.now().replace(year=timezone.now().year - 2)
    partitions.ensure("billing_costevent", now=old, ahead=0)
    return old


def test_archiving_is_the_administrators_and_needs_a_word(
    olgas: Client, olga: User, due: Any
) -> None:
    with mock.patch("billing.views.archived.async_task") as task:
        assert olgas.post("/c/ACM/costs/archive/take", {"sure": "on"}).status_code == 403
        User.objects.filter(id=olga.id).update(is_superuser=True)
        assert "Archive them" in text(olgas.get("/c/ACM/costs/archive"))
        olgas.post("/c/ACM/costs/archive/take", {})
        assert not task.called
        olgas.post("/c/ACM/costs/archive/take", {"sure": "on"})
    assert task.call_args.args[0] == "billing.archive.take_due"


def test_the_task_archives_what_is_due(due: Any, settings: Any, tmp_path: Any) -> None:
    from billing import archive

    settings.DATA_DIR = tmp_path
    archive.take_due(12)
    entry = ArchivedPartition.objects.get(table="billing_costevent")
    assert (entry.state, entry.month) == ("dropped", due.date().replace(day=1))
    assert (tmp_path / "archive" / entry.file).is_file()


# --- the books -------------------------------------------------------------------------------


@pytest.fixture
def cooked(ada: Agent) -> Any:
    """Books that were changed behind the ledger's back, and put right after the test."""
    book(ada, "k", 100)
    row = Spend.objects.filter(scope=Scope.AGENT, window=Window.DAY)
    row.update(spent_micros=99)
    yield ada
    row.update(spent_micros=100)


def test_the_minutes_check_raises_an_alarm_that_the_page_shows(
    olgas: Client, cooked: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    now = timezone.now()
    assert not audit.look(now=now)
    assert "100 against 99" in caplog.text
    assert "The books disagree" in text(olgas.get("/c/ACM/costs/"))
    caplog.clear()
    assert not audit.look(now=now + timedelta(minutes=1))
    assert caplog.text == ""  # said once
    assert audit.last().wrong_since == now  # type: ignore[union-attr]


def test_only_a_full_proof_takes_the_alarm_back(olgas: Client, cooked: Agent) -> None:
    now = timezone.now()
    audit.look(now=now)
    Spend.objects.filter(scope=Scope.AGENT, window=Window.DAY).update(spent_micros=100)
    assert not audit.look(now=now)
    assert audit.watch(now=now)
    page = text(olgas.get("/c/ACM/costs/"))
    assert "The books disagree" not in page
    assert "ledger, totals and reservations agree" in page


def test_the_minutes_check_finds_what_is_kept_without_a_reservation(
    ada: Agent,
    known_price: None,  # noqa: F811
) -> None:
    ask(factories.running(ada), 40, now=timezone.now())
    mine = Spend.objects.filter(scope=Scope.COMPANY, window=Window.MONTH)
    mine.update(reserved_micros=41)
    found = audit.recent_drifts(now=timezone.now())
    assert [(d.check, d.ledger, d.total) for d in found] == [("reservations = totals", 40, 41)]
    mine.update(reserved_micros=40)
    assert audit.recent_drifts(now=timezone.now()) == []
