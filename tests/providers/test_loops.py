"""Who goes round in circles is held with the evidence; who works is left alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from agents import loops, roster, runs, wakes
from agents.adapters.base import AdapterError, Code, Done, Step, Text
from agents.loop_limits import Limits
from agents.models import Hold
from companies.activity import SYSTEM, Actor
from companies.models import Activity
from issues import board, progress, work
from issues.models import Comment, Issue
from tests import factories
from tests.engine.conftest import pia, puppet, until  # noqa: F401 - fixtures
from tests.engine.puppet import finish

pytestmark = pytest.mark.django_db


# --- steps of one run ------------------------------------------------------------------------


def do(watch: loops.Steps, name: str, given: Any, output: str = "same", *, n: int = 0) -> None:
    watch.see(Step(id=f"{n}", name=name, phase="start", input=given))
    watch.see(Step(id=f"{n}", name=name, phase="end", output=output))


def test_the_ninth_same_step_ends_a_run():
    watch = loops.Steps()
    for n in range(8):
        do(watch, "read_file", {"path": "x"}, n=n)
    with pytest.raises(AdapterError) as stopped:
        do(watch, "read_file", {"path": "x"})
    assert stopped.value.code == Code.LOOP
    assert stopped.value.detail == {
        "loop": "same_step", "step": "read_file", "input": '{"path":"x"}', "times": 9,
    }  # fmt: skip


def test_the_order_of_arguments_makes_no_difference():
    watch = loops.Steps()
    with pytest.raises(AdapterError):
        for n in range(9):
            do(watch, "f", {"a": 1, "b": 2} if n % 2 else {"b": 2, "a": 1})


def test_a_circle_of_two_steps_is_one_too():
    watch = loops.Steps()
    with pytest.raises(AdapterError):
        for n in range(20):
            do(watch, "read" if n % 2 else "write", {"path": "x"})


@pytest.mark.parametrize(
    "steps",
    [
        [("read_file", {"path": str(n)}, "same") for n in range(200)],
        [("bash", {"command": "npm test"}, f"{n} failures") for n in range(50)],
        [("bash", None, "") for _ in range(50)],
        [("git", {"a": "status"}, "clean") if n % 4 == 0 else ("edit", {"n": n}, "ok")
         for n in range(200)],
    ],
    ids=["other files", "other results", "an adapter that tells nothing", "now and then"],
)  # fmt: skip
def test_work_is_no_circle(steps):
    ticks = iter(range(10**6))
    watch = loops.Steps(clock=lambda: float(next(ticks)))
    for n, (name, given, output) in enumerate(steps):
        do(watch, name, given, output, n=n)


def test_a_storm_of_steps_ends_a_run_and_the_same_number_in_peace_does_not():
    limits = Limits(steps_a_minute=10)
    calm = loops.Steps(limits, clock=iter(range(0, 1000, 10)).__next__)
    storm = loops.Steps(limits, clock=iter(range(1000)).__next__)
    for n in range(11):
        calm.see(Step(id=str(n), name="s", phase="start", input={"n": n}))
    with pytest.raises(AdapterError) as stopped:
        for n in range(11):
            storm.see(Step(id=str(n), name="s", phase="start", input={"n": n}))
    assert stopped.value.detail["loop"] == "step_rate"


@pytest.mark.django_db(transaction=True)
def test_such_a_run_is_stopped_and_its_agent_held_with_the_evidence(during, pia, puppet, acme):  # noqa: F811
    async def play(brief):
        for n in range(1000):
            yield Step(id=str(n), name="read_file", phase="start", input={"path": "x"})
            yield Step(id=str(n), name="read_file", phase="end", output="same")
        yield Done()

    puppet.play = play
    issue = factories.issue(acme, assignee=pia)
    woken = runs.wake(
        agent=pia, issue=issue, reason="issue_assigned", source="assignment", actor=SYSTEM
    )
    run = pia.runs.get(pk=woken.run_id)

    async def watch(shift):
        await until(lambda: pia.runs.filter(pk=run.pk, status="failed").exists())

    during(watch)
    run.refresh_from_db()
    issue.refresh_from_db()
    assert (run.status, run.code) == ("failed", "loop_detected")
    assert issue.status == "blocked"
    hold = Hold.objects.get(agent=pia)
    assert hold.reason == "loop"
    assert "9 times" in hold.note
    assert (hold.details["kind"], hold.details["runId"]) == ("same_step", str(run.pk))
    assert pia.runs.filter(status="queued").count() == 0


# --- money -----------------------------------------------------------------------------------


def spent(agent, *costs):
    return [factories.run(agent, status="succeeded", cost_micros=cost) for cost in costs]


@pytest.mark.parametrize(
    ("habit", "cost", "found"),
    [
        ([200_000] * 6, 2_000_001, True),
        ([200_000] * 6, 2_000_000, False),  # ten times is the last that passes
        ([10_000] * 6, 900_000, False),  # below a dollar nobody minds
        ([10_000] * 4, 5_000_000, False),  # too little is known
        ([3_000_000] * 6, 9_000_000, False),
        ([200_000] * 6 + [50_000_000] * 3, 2_500_000, True),  # the median forgets outliers
    ],
)
def test_a_run_that_costs_far_more_than_the_agents_habit_is_found(ada, habit, cost, found):
    spent(ada, *habit)
    run = factories.running(ada, cost_micros=cost)
    assert (loops.overspent(run=run) is not None) is found


def test_it_gets_no_further_call(ada):
    spent(ada, *[200_000] * 6)
    with pytest.raises(AdapterError) as stopped:
        loops.check_spend(run=factories.running(ada, cost_micros=3_000_000))
    assert stopped.value.code == Code.LOOP


# --- progress --------------------------------------------------------------------------------


@pytest.fixture
def carry(ada, acme, now):
    """One run of Ada about an issue, from its checkout to its end, at a moment of its own."""
    moments = (now + timedelta(minutes=20 * n) for n in range(1, 100))

    def one(
        issue: Issue,
        *,
        reason: str = "issue_comment_mentioned",
        summary: str = "",
        wish: str | None = "in_progress",
        every: timedelta | None = None,
        during: Any = None,
        **fields: Any,
    ):
        at = next(moments) if every is None else now + every
        run = factories.running(ada, issue, now=at, reason=reason, source="automation", **fields)
        work.begin(run=run, now=at)
        if during is not None:
            during(run, at)
        end = at + timedelta(seconds=30)
        work.report(run=run, status="succeeded", summary=summary, wish=wish, now=end)
        runs.finish(run_id=run.pk, epoch=run.epoch, status="succeeded", summary=summary, now=end)
        ada.runs.filter(status="queued").delete()
        ended = runs.read(run.pk)
        finding = progress.judge(run=ended, ending="", message="", result={}, now=end)
        return finding.kind if finding else ""

    return one


@pytest.fixture
def foreign(acme, bo):
    """An issue of Bo's, about which Ada is only asked: nothing follows from her runs by itself."""
    return factories.issue(acme, assignee=bo, status="in_progress")


def test_three_runs_that_change_nothing_hold_the_agent(carry, foreign, ada):
    assert [carry(foreign) for _ in range(3)] == ["", "", "no_progress"]
    hold = Hold.objects.get(agent=ada)
    assert (hold.reason, hold.details["issue"]) == ("loop", foreign.identifier)
    assert len(hold.details["runs"]) == 3
    assert Activity.objects.filter(action="agent.held").count() == 1


def test_a_held_agent_starts_nothing_until_a_person_releases_it(carry, foreign, ada, now):
    for _ in range(3):
        carry(foreign)
    issue = factories.issue(foreign.company, assignee=ada)
    factories.run(ada, issue)
    worker = factories.worker()
    assert list(runs.claim(worker_id=worker.pk, limit=5)) == []
    roster.resume(agent=ada, actor=Actor("user", name="Olga"), now=now)
    assert len(runs.claim(worker_id=worker.pk, limit=5)) == 1


def test_new_words_are_progress_and_the_same_words_again_are_not(carry, foreign):
    said = ["I looked.", "I looked again, at the door.", "Now at the window."]
    assert [carry(foreign, summary=one) for one in said] == ["", "", ""]
    again = [carry(foreign, summary=f"Thanks! ({n})") for n in range(4)]
    assert again == ["", "", "", "no_progress"]


def test_sub_issues_and_other_changes_are_progress(carry, foreign, acme, ada):
    def split(run, at):
        by = Actor("agent", ada.pk, "Ada", run.pk)
        board.create(company=acme, actor=by, title="A part", parent=foreign, now=at)

    assert [carry(foreign, during=split) for _ in range(4)] == [""] * 4


def test_a_persons_word_begins_the_count_anew(carry, foreign, olga, now):
    carry(foreign)
    carry(foreign)
    word = Actor("user", olga.pk, "Olga")
    board.comment(
        issue=foreign, body="Go on.", actor=word, now=now + timedelta(minutes=50), wake=False
    )
    assert [carry(foreign), carry(foreign)] == ["", ""]
    assert carry(foreign) == "no_progress"


def test_an_issue_that_is_never_finished_waits_for_a_person_after_two_follow_ups(carry, acme, ada):
    """STK-01: three runs in all, then the issue says so; the agent itself may go on elsewhere."""
    issue = factories.issue(acme, assignee=ada)
    assert [carry(issue) for _ in range(3)] == ["", "", ""]
    issue.refresh_from_db()
    assert issue.status == "blocked"
    assert "A person decides" in issue.blocked_reason
    assert not Hold.objects.exists()


def test_more_than_five_runs_an_hour_for_one_reason_are_too_many(carry, foreign):
    """LOOP-03: busy and chatty, and the issue stands where it stood."""
    kinds = [
        carry(foreign, summary=f"{word}.", every=timedelta(minutes=5 * n))
        for n, word in enumerate(["one", "two", "three", "four", "five", "six"])
    ]
    assert kinds == ["", "", "", "", "", "too_often"]
    assert Hold.objects.count() == 1


def test_the_same_number_over_a_day_is_not(carry, foreign):
    words = ["one", "two", "three", "four", "five", "six", "seven"]
    assert [carry(foreign, summary=word) for word in words] == [""] * 7


@pytest.mark.fault("T29", "a run creates issues without end")
def test_a_run_that_creates_all_issues_it_may_is_the_last(carry, foreign, acme, ada, monkeypatch):
    ada.loop_limits = {"issues_a_run": 3}
    ada.save()
    run = factories.running(ada, foreign)
    by = Actor("agent", ada.pk, "Ada", run.pk)
    for n in range(3):
        board.create(company=acme, actor=by, title=f"Part {n}", parent=foreign)
    assert run.started_at is not None
    finding = progress.judge(
        run=run,
        ending="",
        message="",
        result={},
        now=run.started_at + timedelta(minutes=5),
    )
    assert finding is not None
    assert (finding.kind, finding.details["issues"]) == ("fan_out", 3)


# --- agents that call each other ----------------------------------------------------------------


@pytest.mark.fault("T29", "agents wake each other without end")
def test_agents_wake_each_other_so_many_times_an_hour_and_no_more(acme, ada, bo, foreign, now):
    by = Actor("agent", bo.pk, "Bo")

    def call(at):
        woken = wakes.wake(
            agent=ada, issue=foreign, reason="issue_comment_mentioned", source="automation",
            actor=by, now=at,
        )  # fmt: skip
        ada.runs.filter(status="queued").update(status="succeeded", finished_at=at, started_at=at)
        return woken.refused

    answers = [call(now + timedelta(seconds=n)) for n in range(wakes.WAKES_AN_HOUR + 3)]
    assert answers == [""] * wakes.WAKES_AN_HOUR + ["wake_limit"] * 3
    assert Activity.objects.filter(action="issue.wakes_cut").count() == 1
    assert call(now + timedelta(hours=2)) == ""


def test_a_person_is_never_refused_and_gives_them_room_again(acme, ada, bo, olga, foreign, now):
    for n in range(wakes.WAKES_AN_HOUR):
        factories.run(ada, foreign, status="succeeded", now=now - timedelta(seconds=n))
    by = Actor("agent", bo.pk, "Bo")
    wish = {
        "agent": ada, "issue": foreign, "reason": "issue_commented", "source": "automation",
    }  # fmt: skip
    assert wakes.wake(**wish, actor=by, now=now).refused == "wake_limit"
    person = Actor("user", olga.pk, "Olga")
    board.comment(issue=foreign, body="Go on.", actor=person, now=now, wake=False)
    assert wakes.wake(**wish, actor=person, now=now).refused == ""
    assert wakes.wake(**wish, actor=by, now=now + timedelta(seconds=1)).refused == ""


@pytest.mark.fault("T29", "two agents thank each other")
def test_two_agents_that_thank_each_other_stop_and_a_person_is_asked(acme, ada, bo, now):
    """LOOP-02: mentions for ever, cut after six in a row, said once in the thread."""
    issue = factories.issue(acme, assignee=ada, status="in_progress")
    for n in range(20):
        author, other = (ada, bo) if n % 2 else (bo, ada)
        board.comment(
            issue=issue,
            body=f"Thanks @{other.name}!",
            actor=Actor("agent", author.pk, author.name),
            now=now + timedelta(seconds=n),
        )
        for agent in (ada, bo):
            agent.runs.filter(status="queued").update(
                status="succeeded", started_at=now, finished_at=now
            )
    assert issue.runs.count() == 6
    assert Comment.objects.filter(issue=issue, author_agent=None, author_user=None).count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_run_that_only_talks_is_left_alone(during, pia, puppet, acme):  # noqa: F811
    puppet.play = finish(*(Text(f"{n} ") for n in range(500)))
    issue = factories.issue(acme, assignee=pia)
    runs.wake(agent=pia, issue=issue, reason="issue_assigned", source="assignment", actor=SYSTEM)

    async def watch(shift):
        await until(lambda: pia.runs.filter(status="succeeded").exists())

    during(watch)
    assert not Hold.objects.exists()
