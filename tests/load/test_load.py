"""The load that `manage.py load` makes: its model, its clock, its counting, its manners."""

from __future__ import annotations

import asyncio
import time

import pytest
from django.core.management import CommandError, call_command

from paperclip.load import http, provider, report, scenario
from paperclip.load.driver import Seen
from paperclip.load.machine import Use
from paperclip.load.scenario import Outcome, Stage


class Straight:
    """A product that adds nothing: its user asks the model by themselves."""

    def __init__(self, *, fails: bool = False) -> None:
        self.url = ""
        self.prepared = 0
        self.fails = fails

    async def prepare(self, *, users: int, provider_url: str) -> None:
        self.prepared, self.url = users, provider_url

    async def task(self, *, user: int, prompt: str) -> Seen:
        asked, first = time.monotonic(), None
        client = http.Client(self.url, {})
        body = {"messages": [{"role": "user", "content": prompt}]}
        answer = await client.request("POST", "/v1/chat/completions", body)
        await client.close()
        first = time.monotonic()
        return Seen(asked, first, time.monotonic(), str(answer.status) if self.fails else "")

    async def clean_up(self) -> None:
        pass


def play(stage: Stage, driver: Straight, *, stop_after: float = 60) -> Outcome:
    async def go() -> Outcome:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(stop_after, stop.set)
        async with provider.running() as model:
            await driver.prepare(users=stage.users, provider_url=model.url)
            return await scenario.play(
                stage, driver=driver, provider=model, say=lambda _: None, stop=stop
            )

    return asyncio.run(go())


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model and users that do not dawdle."""
    monkeypatch.setattr(provider, "FIRST_TOKEN_SECONDS", 0.01)
    monkeypatch.setattr(provider, "TOKENS_A_SECOND", 1000)
    monkeypatch.setattr(scenario, "PAUSE_SECONDS", 0.01)


def test_the_model_streams_all_its_tokens_and_what_they_cost(quick: None) -> None:
    async def go() -> tuple[list[object], dict[str, provider.Sent]]:
        async with provider.running() as model:
            client = http.Client(model.url, {})
            answer = await client.request("POST", "/v1/chat/completions", {"x": "[load:a-1]"})
            await client.close()
            lines = [line[6:] for line in answer.body.split(b"\n\n") if line]
            return [line.decode() for line in lines], model.sent

    lines, sent = asyncio.run(go())
    assert sum('"content"' in str(line) for line in lines) == provider.TOKENS
    assert '"completion_tokens": 20' in str(lines[-2])
    assert lines[-1] == "[DONE]"
    assert set(sent) == {"a-1"}
    assert sent["a-1"].done_at > sent["a-1"].first_token_at


def test_every_user_works_and_only_the_time_with_all_of_them_counts(quick: None) -> None:
    outcome = play(Stage("3 users", 3, ramp_seconds=0.3, hold_seconds=1), Straight())
    assert not outcome.failures
    assert len(outcome.responses) == len(outcome.first_delays) == len(outcome.done_delays) > 3
    assert outcome.throughput == len(outcome.responses) / 1


def test_a_stage_that_is_stopped_counts_what_was_done(quick: None) -> None:
    stage = Stage("2 users", 2, ramp_seconds=0, hold_seconds=3_600)
    outcome = play(stage, Straight(), stop_after=0.5)
    assert outcome.responses
    assert 0 < outcome.seconds < 60


def test_a_task_that_fails_is_told_and_not_counted(quick: None) -> None:
    outcome = play(Stage("1 user", 1, ramp_seconds=0, hold_seconds=0.5), Straight(fails=True))
    assert not outcome.responses
    assert set(outcome.failures) == {"200"}


def test_what_pauses_and_model_allow_is_known_before() -> None:
    stage = Stage("50 users", 50, ramp_seconds=1, hold_seconds=1)
    # 380 ms to the first of 20 tokens at 50 a second, then a pause of a second.
    assert stage.allowed == pytest.approx(50 / (0.380 + 19 / 50 + 1))


def test_the_table_has_a_column_for_each_stage() -> None:
    stage = Stage("50 users", 50, 1, 10)
    outcome = Outcome(
        stage, seconds=10, responses=[0.8, 0.9, 1.0], first_delays=[0.05], done_delays=[0.1]
    )
    use = Use({"web": 50 * 2**20, "shifts": 70 * 2**20, "database": 90 * 2**20}, 20, 200)
    table = report.table([(outcome, use), (Outcome(stage), None)])
    assert "| | 50 users | 50 users |" in table
    assert "| response, ms: average / p95 / p99 | 900 / 1,000 / 1,000 | none |" in table
    assert "| 120 (database 90, shifts 70, web 50) | not on this machine |" in table
    assert "| 20 of 200 (10 %) | not known |" in table


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([1, 2, 3, 4], 50, 2), ([1, 2, 3, 4], 95, 4), (list(range(1, 101)), 99, 99), ([7], 99, 7)],
)
def test_a_percentile_is_a_value_that_was_seen(
    values: list[float], percent: float, expected: float
) -> None:
    assert report.percentile(values, percent) == expected


def test_another_machine_is_not_put_under_load_by_accident() -> None:
    with pytest.raises(CommandError, match="not on this machine"):
        call_command("load", url="http://192.0.2.7:8000")


@pytest.mark.parametrize("users", ["0", "-1", "many", "1001", "5,,8"])
def test_a_senseless_number_of_users_is_refused(users: str) -> None:
    with pytest.raises(CommandError, match="--users"):
        call_command("load", users=users)


def test_seconds_are_bounded() -> None:
    with pytest.raises(CommandError, match="seconds"):
        call_command("load", users="1", hold=1e9)


def test_an_unknown_driver_is_named() -> None:
    with pytest.raises(CommandError, match="--driver"):
        call_command("load", driver="paperclip.load.nobody.Knows")
