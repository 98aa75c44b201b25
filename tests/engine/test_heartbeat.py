"""A heartbeat, from the wake to the last row, by a real shift."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from agents import directory, runs
from agents.adapters import base
from agents.models import Agent, HeartbeatRun, Hold, RunEvent
from billing.models import CostEvent
from companies import activity, secrets
from companies.models import Activity, Secret, SecretRead
from issues.models import Checkout, Comment, Issue
from paperclip.engine import notes
from tests import factories
from tests.api.conftest import Caller
from tests.engine.conftest import ask, until
from tests.engine.puppet import fail, finish, wait_for_ever

pytestmark = pytest.mark.django_db(transaction=True)


def wake(agent: Agent, issue: Issue | None, **fields: Any) -> HeartbeatRun:
    wake = runs.wake(
        agent=agent,
        issue=issue,
        reason="issue_assigned",
        source="assignment",
        actor=activity.SYSTEM,
        **fields,
    )
    return HeartbeatRun.objects.get(pk=wake.run_id)


def over(run: HeartbeatRun) -> Any:
    return lambda: HeartbeatRun.objects.exclude(status__in=HeartbeatRun.LIVE).filter(pk=run.pk)


@pytest.fixture
def carried(during, pia):
    """Wake Pia about an issue, carry the run, return it and the issue as they are then."""

    def carry(issue: Issue | None) -> HeartbeatRun:
        run = wake(pia, issue)

        async def watch(shift: Any) -> None:
            await until(lambda: over(run)().exists())

        during(watch)
        run.refresh_from_db()
        if issue is not None:
            issue.refresh_from_db()
        return run

    return carry


@pytest.fixture
def task(acme, pia) -> Issue:
    return factories.issue(acme, "Forge an anvil", assignee=pia)


def test_a_run_that_goes_well_finishes_its_issue(carried, task, pia):
    run = carried(task)
    assert (run.status, run.epoch, run.token_digest) == ("succeeded", 2, None)
    assert task.status == "done"
    assert Comment.objects.get(issue=task).body == "All done."
    assert not Checkout.objects.filter(released_at=None).exists()
    assert Activity.objects.filter(action="run.succeeded", run_id=run.pk).count() == 1


def test_what_it_says_becomes_rows_in_order(carried, puppet, task):
    puppet.play = finish(
        base.Started(model="m-1"),
        base.Text("Hel"),
        base.Text("lo"),
        base.Text("hm", "thinking"),
        base.Step("1", "look", "start", input={"at": "it"}),
        base.Step("1", "look", "end", output="seen"),
        base.Text("out", "stdout"),
    )
    run = carried(task)
    events = list(RunEvent.objects.filter(run_id=run.pk).order_by("seq"))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [(e.kind, e.text) for e in events] == [
        ("status", ""),
        ("text", "Hello"),
        ("text", "hm"),
        ("step", ""),
        ("step", "seen"),
        ("stdout", "out"),
        ("status", ""),
    ]
    assert run.model == "m-1"


@pytest.mark.parametrize("how", [finish, lambda *said: fail(base.Code.REFUSED, *said)])
def test_its_end_says_which_model_answered_in_which_session(
    carried, puppet, task, monkeypatch, how
):
    monkeypatch.setattr(notes, "LATER_SECONDS", 60)
    puppet.play = how(base.Started(model="m-1"), base.Started("", session_id="s-1"))
    run = carried(task)
    assert (run.model, run.session) == ("m-1", {"id": "s-1"})


def test_a_run_that_goes_on_says_so_meanwhile(during, puppet, pia, task):
    puppet.play = wait_for_ever(base.Started(model="m-1", session_id="s-1"))
    run = wake(pia, task)

    async def watch(shift: Any) -> None:
        told = HeartbeatRun.objects.filter(pk=run.pk, status="running", model="m-1")
        await until(lambda: told.filter(session={"id": "s-1"}).exists())

    during(watch)


def test_the_brief_tells_the_agent_what_it_needs(carried, puppet, task, acme, pia):
    run = carried(task)
    (brief,) = puppet.briefs
    assert brief.task is not None
    assert (brief.task.identifier, brief.company_name) == (task.identifier, "Acme")
    assert brief.env["PAPERCLIP_RUN_ID"] == str(run.pk)
    assert brief.env["PAPERCLIP_API_KEY"] == brief.api_key
    assert {tool.name for tool in brief.tools} >= {"comment", "set_status"}


def test_a_runs_folder_is_there_while_it_runs_only(carried, puppet, task, data_dir):
    seen = []

    async def play(brief: base.Brief):
        seen.append((data_dir / "runs" / brief.run_id).stat().st_mode & 0o777)
        yield base.Done()

    puppet.play = play
    run = carried(task)
    assert seen == [0o700]
    assert not (data_dir / "runs" / str(run.pk)).exists()


def test_who_needs_no_folder_gets_none(carried, puppet, task, data_dir):
    puppet.needs_folder = False
    run = carried(task)
    (brief,) = puppet.briefs
    assert (run.status, brief.run_dir, brief.agent_dir) == ("succeeded", "", "")
    assert [path for path in data_dir.rglob("*") if path.name != "shifts"] == []


def test_a_call_is_booked_once_and_shown(carried, puppet, task):
    usage = base.Usage(1, "openai", "gpt-4o-mini", input_tokens=1000, output_tokens=10)
    puppet.play = finish(usage, usage)
    run = carried(task)
    event = CostEvent.objects.get()
    assert (event.run_id, event.issue_id) == (run.pk, task.pk)
    assert run.cost_micros == event.cost_micros
    shown = RunEvent.objects.filter(run_id=run.pk, kind="usage").first()
    assert shown is not None
    assert shown.data["inputTokens"] == 1000


def test_a_tool_call_acts_on_the_issue_and_is_remembered(carried, puppet, task):
    results = []

    async def play(brief: base.Brief):
        results.append(await brief.call_tool("comment", {"body": "Half way."}))
        yield base.Done(summary="Unused: the agent has spoken.")

    puppet.play = play
    run = carried(task)
    assert not results[0].is_error
    assert Comment.objects.get(issue=task).body == "Half way."
    assert run.acted_at is not None


def test_a_passing_failure_is_tried_again_later(carried, puppet, task, now):
    puppet.play = fail(base.Code.PROVIDER_OVERLOADED)
    run = carried(task)
    assert (run.status, run.code) == ("failed", "provider_overloaded")
    retry = HeartbeatRun.objects.get(retry_of=run)
    assert (retry.status, retry.attempt, retry.source) == ("queued", 2, "retry")
    assert timedelta(seconds=115) < retry.not_before - now < timedelta(seconds=180)
    assert task.status == "todo"


def test_a_provider_that_names_a_time_is_obeyed(carried, puppet, task, now):
    puppet.play = fail(base.Code.RATE_LIMITED, retry_after=1000)
    run = carried(task)
    retry = HeartbeatRun.objects.get(retry_of=run)
    assert timedelta(seconds=995) < retry.not_before - now < timedelta(seconds=1300)


def test_nothing_is_tried_again_after_an_act(carried, puppet, task):
    async def play(brief: base.Brief):
        await brief.call_tool("comment", {"body": "Half way."})
        yield base.Text("…")
        raise base.AdapterError(base.Code.STREAM_BROKEN, "gone")

    puppet.play = play
    carried(task)
    assert HeartbeatRun.objects.count() == 1
    assert task.status == "blocked"


def test_a_lasting_failure_is_shown_at_the_issue_and_the_agent(carried, puppet, task, pia):
    puppet.play = fail(base.Code.AUTH_FAILED)
    carried(task)
    pia.refresh_from_db()
    assert (task.status, pia.error_code) == ("blocked", "auth_failed")
    assert "Key not accepted" in task.blocked_reason
    assert HeartbeatRun.objects.count() == 1


def test_a_success_clears_the_agents_error(carried, task, pia):
    Agent.objects.update(error_code="auth_failed")
    carried(task)
    pia.refresh_from_db()
    assert pia.error_code == ""


def test_a_used_up_quota_holds_the_agent(carried, puppet, task, pia):
    puppet.play = fail(base.Code.QUOTA_EXHAUSTED)
    carried(task)
    assert Hold.objects.get(agent=pia).reason == "quota"


@pytest.mark.parametrize("code", [base.Code.TIMED_OUT, base.Code.IDLE])
def test_a_limit_of_time_has_its_own_status(carried, puppet, task, code):
    puppet.play = fail(code)
    assert carried(task).status == "timed_out"


def test_a_fault_of_ours_is_internal_and_hides_its_words(carried, puppet, task, caplog):
    async def play(brief: base.Brief):
        yield base.Text("…")
        raise RuntimeError("sensitive words")

    puppet.play = play
    run = carried(task)
    assert (run.status, run.code) == ("failed", "internal_error")
    assert "sensitive" not in run.message
    assert str(run.pk) in caplog.text


def test_an_adapter_without_a_result_is_a_failure(carried, puppet, task):
    async def play(brief: base.Brief):
        yield base.Text("…")

    puppet.play = play
    assert carried(task).code == "bad_result"


def test_an_unknown_adapter_is_a_configuration_failure(carried, task, pia):
    Agent.objects.update(adapter_type="nonesuch")
    assert carried(task).code == "config_invalid"


def test_an_issue_in_other_hands_is_left_alone(carried, puppet, task, bo):
    Checkout.objects.create(
        company_id=task.company_id, issue=task, agent=bo, created_at=timezone.now()
    )
    run = carried(task)
    assert (run.status, run.code) == ("cancelled", "checkout_conflict")
    assert puppet.briefs == []


def test_secrets_reach_the_adapter_and_never_a_row(
    carried, puppet, task, acme, olga, now, monkeypatch
):
    value = "sk-very-secret-value"
    secrets.put(company=acme, name="KEY_A", value=value, actor=activity.SYSTEM, now=now)

    class Config(base.Config):
        key: str = ""

        def secret_names(self) -> set[str]:
            return {"KEY_A"}

    puppet.Config = Config

    async def play(brief: base.Brief):
        assert brief.secrets == {"KEY_A": value}
        yield base.Text(f"it is {value[:7]}")
        yield base.Text(f"{value[7:]} and {brief.api_key}!")
        yield base.Step("1", "show", "end", output=value, input={"k": [value]})
        yield base.Done(summary=f"used {value}")

    puppet.play = play
    run = carried(task)
    events = RunEvent.objects.filter(run_id=run.pk)
    everything = "".join(f"{e.text}{e.data}" for e in events) + run.summary
    assert value not in everything
    assert puppet.briefs[0].api_key not in everything
    assert "it is [redacted] and [redacted]!" in everything
    assert value not in Comment.objects.get(issue=task).body
    opened = SecretRead.objects.get()
    assert (opened.purpose, opened.run_id) == ("run", run.pk)
    assert opened.secret_id == Secret.objects.get(name="KEY_A").id


def test_a_variable_of_the_server_is_given_when_it_is_named_and_looks_like_a_key(
    carried, puppet, task, pia, monkeypatch
):
    monkeypatch.setenv("SOME_API_KEY", "from-the-environment")
    monkeypatch.setenv("DATABASE_KEY", "never")
    for name, expected in (
        ("SOME_API_KEY", {"SOME_API_KEY": "from-the-environment"}),
        ("DATABASE_KEY", {}),
    ):
        Agent.objects.filter(pk=pia.pk).update(adapter_config={"apiKeyEnv": name})
        Issue.objects.filter(pk=task.pk).update(status="todo")
        carried(task)
        assert puppet.briefs[-1].secrets == expected


def test_a_cancelled_run_stops_and_frees_its_issue(during, puppet, pia, task, olga):
    puppet.play = wait_for_ever(base.Text("working"))
    run = wake(pia, task)

    async def watch(shift: Any) -> None:
        await until(lambda: RunEvent.objects.filter(run_id=run.pk, kind="text").exists())
        await until(
            lambda: (
                runs.cancel(run=run, actor=activity.Actor("user", olga.pk), reason="No more")
                == "running"
            )
        )
        await until(lambda: over(run)().exists())

    during(watch)
    run.refresh_from_db()
    task.refresh_from_db()
    pia.refresh_from_db()
    assert (run.status, run.code, run.message) == ("cancelled", "cancelled", "No more")
    assert (task.status, pia.error_code) == ("todo", "")
    assert puppet.cleaned == [str(run.pk)]


def test_a_run_that_goes_on_elsewhere_keeps_its_token_and_no_worker(during, puppet, pia, task):
    waiting = base.Note("Waiting for the service's answer.")
    puppet.play = finish(
        base.Started(model="m-1"), waiting, awaiting_callback=True, session_id="s-1"
    )
    run = wake(pia, task)

    async def watch(shift: Any) -> None:
        await until(
            lambda: HeartbeatRun.objects.filter(pk=run.pk, lease_expires_at__isnull=False).exists()
        )

    during(watch)
    run.refresh_from_db()
    assert (run.status, run.worker_id) == ("running", None)
    assert (run.model, run.session) == ("m-1", {"id": "s-1"})
    assert run.token_digest is not None
    said = list(RunEvent.objects.filter(run_id=run.pk, kind="system").order_by("seq"))
    assert said[0].text == waiting.text
    assert re.fullmatch(
        r"The service has taken the run over; it must report, or ask for more time, by"
        r" \d\d:\d\d UTC\.",
        said[1].text,
    )
    by = f"{run.lease_expires_at:%H:%M}"
    assert directory.at_work(run, said[1]) == (
        f"The service has taken the run over; it must report by {by} UTC"
    )


def test_a_word_of_the_adapters_own_is_what_a_run_is_at(during, puppet, pia, task):
    puppet.play = wait_for_ever(base.Started(), base.Note("Waiting for the service's answer."))
    run = wake(pia, task)

    async def watch(shift: Any) -> None:
        await until(lambda: RunEvent.objects.filter(run_id=run.pk, kind="system").exists())
        await ask(run.refresh_from_db)
        seen = await ask(directory.latest, [run])
        assert directory.at_work(run, seen[run.pk]) == "Waiting for the service's answer."

    during(watch)


def test_a_shift_that_drains_puts_safe_runs_down_for_others(during, puppet, pia, task):
    puppet.play = wait_for_ever(base.Text("working"))
    run = wake(pia, task)

    async def watch(shift: Any) -> None:
        await until(lambda: RunEvent.objects.filter(run_id=run.pk, kind="text").exists())

    assert during(watch) == "drained"
    run.refresh_from_db()
    task.refresh_from_db()
    following = HeartbeatRun.objects.get(retry_of=run)
    assert (run.status, run.code) == ("lost", "lost")
    assert (following.status, following.attempt) == ("queued", 1)
    assert task.status == "todo"
    assert not Checkout.objects.filter(released_at=None).exists()


def test_a_shift_that_drains_leaves_unsafe_runs_to_a_person(during, puppet, pia, task):
    puppet.retry_safe = False
    puppet.play = wait_for_ever(base.Text("working"))
    run = wake(pia, task)

    async def watch(shift: Any) -> None:
        await until(lambda: RunEvent.objects.filter(run_id=run.pk, kind="text").exists())

    during(watch)
    run.refresh_from_db()
    task.refresh_from_db()
    assert (run.status, task.status) == ("unknown", "blocked")
    assert HeartbeatRun.objects.count() == 1


def test_a_run_within_the_grace_ends_by_itself(during, puppet, pia, task):
    import asyncio

    async def play(brief: base.Brief):
        yield base.Text("working")
        await asyncio.sleep(0.5)
        yield base.Done()

    puppet.play = play
    run = wake(pia, task)

    async def watch(shift: Any) -> None:
        await until(lambda: RunEvent.objects.filter(run_id=run.pk, kind="text").exists())

    during(watch, grace_seconds=10)
    run.refresh_from_db()
    assert run.status == "succeeded"


def test_a_call_back_that_overtakes_its_202_ends_the_run_once(carried, puppet, task, monkeypatch):
    """The service reports before its answer to our POST has been read."""
    monkeypatch.setattr(runs, "CALLED_BACK", ("puppet",))
    said = []

    async def play(brief: base.Brief):
        service, path = Caller(brief.api_key), f"/api/heartbeat-runs/{brief.run_id}"
        yield base.Note("Waiting for the service's answer.")
        for deed, body in (("lease", {}), ("result", {"summary": "Forged.", "status": "done"})):
            answer = await ask(service.send, "POST", f"{path}/{deed}", body)
            said.append(answer.status_code)
        yield base.Done(awaiting_callback=True)

    puppet.play = play
    run = carried(task)
    assert said == [200, 200]
    assert (run.status, run.epoch, run.lease_expires_at) == ("succeeded", 2, None)
    assert task.status == "done"
    assert Comment.objects.get(issue=task).body == "Forged."
    assert Activity.objects.filter(action="run.succeeded", run_id=run.pk).count() == 1
    assert not Checkout.objects.filter(released_at=None).exists()


def test_a_cancellation_that_meets_the_202_is_not_lost(carried, puppet, task, monkeypatch):
    """Whoever is told of cancellations hears of this one too late, or never."""
    monkeypatch.setattr(runs.live, "cancel", lambda run_id: None)

    async def play(brief: base.Brief):
        yield base.Note("Waiting for the service's answer.")
        going = await ask(HeartbeatRun.objects.get, id=brief.run_id)
        assert await ask(runs.cancel, run=going, actor=activity.SYSTEM, reason="Enough.") == (
            "running"
        )
        yield base.Done(awaiting_callback=True)

    puppet.play = play
    run = carried(task)
    assert (run.status, run.code, run.message) == ("cancelled", "cancelled", "Enough.")
    assert (run.lease_expires_at, run.token_digest) == (None, None)
    assert not Checkout.objects.filter(released_at=None).exists()
