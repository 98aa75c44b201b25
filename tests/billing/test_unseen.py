"""Runs whose calls nobody sees: what is kept aside for them before anybody knows what they cost."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from agents.models import Agent, HeartbeatRun
from billing import budgets, unseen
from billing.budgets import BudgetExhausted, FirstRunUnderWay
from billing.grants import RoomTaken
from billing.models import Reservation, Scope, Spend, Window
from companies.activity import SYSTEM
from companies.models import Company
from issues import why
from issues.models import Issue
from tests import factories
from tests.billing.receipts import at_once, book
from tests.billing.test_reservations import DECEMBER, LAST_SECOND, NOVEMBER, end, limit, receipt

DOLLAR = 1_000_000


@pytest.fixture
def cli(acme: Company) -> Agent:
    """A command that has never run."""
    return factories.agent(acme, "Cli", adapter_type="process")


def start(agent: Agent, **fields: Any) -> HeartbeatRun:
    run = factories.running(agent, fields.pop("issue", None))
    budgets.check_call(agent=agent, run_id=run.id, **{"now": NOVEMBER, **fields})
    return run


def kept(run: HeartbeatRun) -> int:
    rows = Reservation.objects.filter(run_id=run.id, state="held")
    return sum(rows.values_list("open_micros", flat=True))


def total(scope: Any) -> tuple[int, int]:
    found = Spend.objects.get(scope_id=scope.id, window=Window.MONTH, period_start="2026-11-01")
    return found.spent_micros, found.reserved_micros


def waiting(agent: Agent, issue: Issue, now: datetime, code: str = "budget_exhausted") -> Any:
    """The run that follows one which could not start."""
    refused = factories.run(agent, issue, status="cancelled", code=code)
    return factories.run(
        agent, issue, retry_of=refused, not_before=now + timedelta(hours=1), reason="retry"
    )


# --- before anybody knows --------------------------------------------------------------------


def test_where_no_limit_stands_nothing_is_kept_and_nobody_waits(cli: Agent) -> None:
    assert [kept(start(cli)) for _ in range(3)] == [0, 0, 0]


def test_a_soft_limit_lets_them_all_start(acme: Company, cli: Agent) -> None:
    limit(acme, acme, 100, is_hard=False)
    assert [kept(start(cli)) for _ in range(3)] == [0, 0, 0]


def test_the_first_run_keeps_half_of_what_is_left_of_a_shared_limit(
    acme: Company, cli: Agent
) -> None:
    limit(acme, acme, 101)
    assert kept(start(cli)) == 51


def test_it_keeps_all_that_is_left_of_its_agents_own_limit(acme: Company, cli: Agent) -> None:
    limit(acme, cli, 40)
    limit(acme, acme, 1_000)
    assert kept(start(cli)) == 40


def test_the_daily_cap_of_an_agent_is_such_a_limit(cli: Agent) -> None:
    Agent.objects.filter(id=cli.id).update(max_daily_cost_micros=70)
    cli.refresh_from_db()
    assert kept(start(cli)) == 70
    with pytest.raises(FirstRunUnderWay):
        start(cli)


def test_a_limit_of_one_run_is_kept_instead_and_nobody_waits(acme: Company, cli: Agent) -> None:
    limit(acme, acme, 100)
    limit(acme, cli, 30, window=Window.RUN)
    assert [kept(start(cli)) for _ in range(3)] == [30, 30, 30]
    with pytest.raises(BudgetExhausted, match="at worst"):
        start(cli)
    assert total(acme) == (0, 90)


def test_the_second_waits_for_the_first_and_says_for_what(acme: Company, cli: Agent) -> None:
    limit(acme, acme, 100)
    first = start(cli)
    with pytest.raises(FirstRunUnderWay, match="Nobody knows yet what a run of Cli costs") as no:
        start(cli)
    assert no.value.again_in < BudgetExhausted.again_in
    assert total(acme) == (0, 50)
    receipt(first, 1, 20)
    end(first, "succeeded")
    assert kept(start(cli)) == 20  # it has a history now
    assert kept(start(cli)) == 20


def test_only_runs_at_the_same_limit_wait_for_each_other(acme: Company, cli: Agent) -> None:
    rocket, anvil = factories.project(acme, "Rocket"), factories.project(acme, "Anvil")
    limit(acme, rocket, 100)
    limit(acme, anvil, 100)
    others = [factories.agent(acme, f"C{number}", adapter_type="process") for number in range(3)]
    assert kept(start(cli, project_id=rocket.id)) == 50
    assert kept(start(others[0], project_id=anvil.id)) == 50
    with pytest.raises(FirstRunUnderWay):
        start(others[1], project_id=rocket.id)
    assert kept(start(others[2])) == 0  # in no project, and so at no limit


def test_another_companys_first_run_is_none_of_ours(
    acme: Company, globex: Company, cli: Agent
) -> None:
    limit(acme, acme, 100)
    limit(globex, globex, 100)
    start(cli)
    assert kept(start(factories.agent(globex, "Cli", adapter_type="process"))) == 50


def test_a_run_that_failed_before_it_cost_anything_is_no_history(cli: Agent) -> None:
    factories.run(cli, status=HeartbeatRun.Status.FAILED)
    assert budgets.usual_cost(cli.id) is None
    factories.run(cli, status=HeartbeatRun.Status.SUCCEEDED, unpriced_calls=1)
    assert budgets.usual_cost(cli.id) is None  # unknown is not 0
    factories.run(cli, status=HeartbeatRun.Status.SUCCEEDED)
    assert budgets.usual_cost(cli.id) == 0


def test_scripts_that_cost_nothing_run_side_by_side(acme: Company, cli: Agent) -> None:
    limit(acme, acme, 100)
    factories.run(cli, status=HeartbeatRun.Status.SUCCEEDED)
    assert [kept(start(cli)) for _ in range(5)] == [0] * 5


def test_a_first_run_that_was_lost_does_not_stand_in_the_way(acme: Company, cli: Agent) -> None:
    limit(acme, acme, 100)
    end(start(cli), "lost", "lost")
    assert kept(start(cli)) == 25  # half of what the lost one leaves
    assert total(acme) == (0, 75)


def test_nothing_starts_where_nothing_is_left(acme: Company, cli: Agent) -> None:
    limit(acme, acme, 100)
    book(factories.agent(acme, "Spender"), "k", 100, now=NOVEMBER)
    with pytest.raises(BudgetExhausted, match="monthly budget is used up") as no:
        start(cli)
    assert not isinstance(no.value, FirstRunUnderWay)


def test_what_usually_costs_more_than_one_run_may_keeps_what_one_may(
    acme: Company, cli: Agent
) -> None:
    done = factories.run(cli, status=HeartbeatRun.Status.SUCCEEDED)
    book(cli, "old", 500, run_id=done.id, now=LAST_SECOND)
    limit(acme, cli, 200, window=Window.RUN)
    assert kept(start(cli)) == 200


def test_asked_again_it_is_the_same_run(acme: Company, cli: Agent) -> None:
    limit(acme, acme, 100)
    run = start(cli)
    budgets.check_call(agent=cli, run_id=run.id, now=NOVEMBER)
    assert Reservation.objects.filter(run_id=run.id, state="held").count() == 1
    with pytest.raises(FirstRunUnderWay):
        start(cli)


# --- what it reports -------------------------------------------------------------------------


def test_after_a_report_as_much_is_kept_for_the_next(acme: Company, cli: Agent) -> None:
    limit(acme, acme, 100)
    run = start(cli)
    receipt(run, 1, 45)
    assert kept(run) == 5
    assert budgets.top_up(run_id=run.id, micros=45, now=NOVEMBER)
    assert total(acme) == (45, 45)
    assert Reservation.objects.get(run_id=run.id, state="held").is_guess
    with pytest.raises(FirstRunUnderWay):
        start(cli)


def test_what_is_kept_is_enough_already(acme: Company, cli: Agent) -> None:
    limit(acme, acme, 100)
    run = start(cli)
    receipt(run, 1, 5)
    assert budgets.top_up(run_id=run.id, micros=5, now=NOVEMBER)
    assert (kept(run), Reservation.objects.count()) == (45, 1)


def test_where_the_next_report_would_not_fit_it_is_told_to_stop(acme: Company, cli: Agent) -> None:
    limit(acme, acme, 100)
    run = start(cli)
    receipt(run, 1, 60)
    assert not budgets.top_up(run_id=run.id, micros=60, now=NOVEMBER)
    assert total(acme) == (60, 0)


def test_a_run_that_started_before_the_limit_keeps_from_its_next_report_on(
    acme: Company, cli: Agent
) -> None:
    run = start(cli)
    receipt(run, 1, 10)
    assert budgets.top_up(run_id=run.id, micros=10, now=NOVEMBER)
    assert kept(run) == 0
    limit(acme, acme, 100)
    receipt(run, 2, 10)
    assert budgets.top_up(run_id=run.id, micros=10, now=NOVEMBER)
    assert total(acme) == (20, 10)


def test_a_run_that_is_over_keeps_nothing_more(acme: Company, cli: Agent) -> None:
    limit(acme, acme, 100)
    run = start(cli)
    end(run, "succeeded")
    receipt(run, 1, 90)
    assert budgets.top_up(run_id=run.id, micros=90, now=NOVEMBER)
    budgets.turn(now=NOVEMBER)
    assert total(acme) == (90, 0)


def test_at_the_months_turn_what_is_kept_goes_to_the_new_month(acme: Company, cli: Agent) -> None:
    limit(acme, acme, 100, now=LAST_SECOND)
    run = start(cli, now=LAST_SECOND)
    receipt(run, 1, 30, now=DECEMBER)
    assert budgets.top_up(run_id=run.id, micros=30, now=DECEMBER)
    months = Spend.objects.filter(scope=Scope.COMPANY, window=Window.MONTH).order_by("period_start")
    assert list(months.values_list("spent_micros", "reserved_micros")) == [(0, 0), (30, 30)]


# --- all at once -----------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_of_twenty_first_runs_at_once_exactly_one_starts(acme: Company, cli: Agent) -> None:
    limit(acme, acme, 5 * DOLLAR)
    agents = [cli, *(factories.agent(acme, f"C{n}", adapter_type="http") for n in range(3))]
    runs = [factories.running(agents[number % 4]) for number in range(20)]
    answers = at_once(
        [partial(budgets.check_call, agent=run.agent, run_id=run.id, now=NOVEMBER) for run in runs],
        workers=20,
    )
    assert answers.count(None) == 1
    assert {type(answer) for answer in answers if answer} == {FirstRunUnderWay}
    assert total(acme) == (0, 2_500_000)


def test_without_the_rule_of_one_they_would_all_start(
    acme: Company, cli: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sentinel: it is this rule that holds them back, and not the limit."""
    monkeypatch.setattr(unseen, "_others", lambda *_: Reservation.objects.none())
    limit(acme, acme, 5 * DOLLAR)
    assert all(kept(start(cli)) for _ in range(20))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("chunk", [1, 10])
def test_programs_at_once_pass_a_limit_by_no_more_than_their_last_reports(
    acme: Company, cli: Agent, chunk: int
) -> None:
    """Each costs a dollar, reported in equal parts; the engine's steps, on twenty threads."""
    limit(acme, acme, 5 * DOLLAR)
    part = DOLLAR // chunk

    def work(run: HeartbeatRun) -> None:
        for _ in range(400):
            try:
                budgets.check_call(agent=cli, run_id=run.id, now=NOVEMBER)
                break
            except FirstRunUnderWay:
                continue
            except BudgetExhausted:
                end(run, "cancelled", "budget_exhausted")
                return
        else:
            return
        for call in range(1, chunk + 1):
            over = receipt(run, call, part).exhausted
            goes_on = budgets.top_up(run_id=run.id, micros=part, now=NOVEMBER)
            if call < chunk and (over or not goes_on):
                end(run, "failed", "budget_exhausted")
                return
        end(run, "succeeded")

    runs = [factories.running(cli) for _ in range(20)]
    answers = at_once([partial(work, run) for run in runs], workers=20)
    assert [answer for answer in answers if answer] == []
    budgets.turn(now=NOVEMBER + timedelta(minutes=1))
    spent, reserved = total(acme)
    assert reserved == 0
    assert spent <= 5 * DOLLAR
    assert spent >= 3 * DOLLAR, "the wall stood far too early"


# --- who waits for room ----------------------------------------------------------------------


def test_who_waits_for_what_others_keep_looks_again_soon(acme: Company, cli: Agent) -> None:
    before = start(cli)
    receipt(before, 1, 60)
    end(before, "succeeded")
    limit(acme, acme, 160)
    first = start(cli)
    with pytest.raises(RoomTaken, match="The next run may cost more") as soon:
        start(cli)
    assert "it starts by itself then" in soon.value.message
    receipt(first, 2, 60)
    end(first, "succeeded")
    with pytest.raises(BudgetExhausted) as late:  # now it is spent, and does not come back
        start(cli)
    assert soon.value.again_in < late.value.again_in == BudgetExhausted.again_in


def test_an_issue_says_that_it_waits_for_room_in_the_budget(
    acme: Company, cli: Agent, now: datetime
) -> None:
    issue = factories.issue(acme, status="todo", assignee=cli)
    run = waiting(cli, issue, now)
    (chip,) = why.not_running(issue, now=now)
    assert (chip.code, chip.action, chip.at) == ("budget_room", "raise_budget", run.not_before)
    run.retry_of.status = "failed"
    run.retry_of.save()
    (chip,) = why.not_running(issue, now=now)
    assert chip.code == "not_before"


@pytest.mark.parametrize("how", ["raised", "removed", "turned"])
def test_room_in_a_budget_starts_who_waits_for_it(
    how: str, acme: Company, globex: Company, cli: Agent, now: datetime
) -> None:
    mine = waiting(cli, factories.issue(acme, assignee=cli), now)
    quota = waiting(cli, factories.issue(acme, assignee=cli), now, code="quota_exhausted")
    other = factories.agent(globex, "Cli", adapter_type="process")
    theirs = waiting(other, factories.issue(globex, assignee=other), now)
    budget = limit(acme, acme, 100, now=now)
    HeartbeatRun.objects.filter(id=mine.id).update(not_before=mine.not_before)
    if how == "raised":
        limit(acme, acme, 200, now=now)
    elif how == "removed":
        budgets.remove_limit(budget=budget, actor=SYSTEM, now=now)
    else:
        Spend.objects.filter(scope_id=acme.id).delete()
        budgets.turn(now=now)
    for run, starts in ((mine, True), (quota, False), (theirs, False)):
        run.refresh_from_db()
        assert (run.not_before == now) == starts
