"""The simulated agent says that it is one, and always plays the same play."""

from typing import Any

import pytest

from agents import adapters
from agents.adapters.base import Code, Step
from tests.adapters.conftest import Played, Toolbox, make_brief, play

DEMO = adapters.get("demo")


def run(run_id: str = "run-1", **config: Any) -> tuple[Played, Toolbox]:
    box = Toolbox()
    settings = adapters.validate("demo", {"pace": 0, **config})
    return play(DEMO, make_brief(run_id=run_id, config=settings, call_tool=box)), box


def timeless(played: Played) -> list[object]:
    """The events without the durations of real tool calls."""
    return [
        (event.name, event.phase, event.output) if isinstance(event, Step) else event
        for event in played.events
    ]


def test_it_is_labelled_and_costs_nothing() -> None:
    played, box = run(questions=False)
    assert DEMO.simulated
    assert played.text().startswith("[Simulated]")
    assert played.usages == []
    assert played.done is not None
    assert played.done.status == "in_review"
    assert played.done.result == {"simulated": True}
    ((tool, arguments),) = box.calls
    assert tool == "comment"
    assert str(arguments["body"]).startswith("[Simulated]")
    assert played.text("thinking")
    assert len(played.steps) >= 8


def test_the_same_run_plays_the_same() -> None:
    assert timeless(run("run-7")[0]) == timeless(run("run-7")[0])


def test_some_runs_ask_and_most_do_not() -> None:
    asked = 0
    for number in range(60):
        played, box = run(f"run-{number}")
        assert played.error is None
        if box.calls[0][0] == "ask_operator":
            asked += 1
            assert played.done is not None
            assert played.done.status is None
    assert 2 <= asked <= 25


def test_it_fails_as_often_as_it_is_told() -> None:
    errors = [run(f"run-{number}", failRate=1)[0].error for number in range(5)]
    assert [error.code for error in errors if error] == [Code.SIMULATED] * 5
    assert all(run(f"run-{number}", failRate=0)[0].error is None for number in range(5))


@pytest.mark.parametrize("script", ["research", "engineering", "writing"])
def test_every_script_plays_to_its_end(script: str) -> None:
    played, _ = run(script=script, questions=False)
    assert played.done is not None
    assert "{title}" not in str(played.events)


def test_without_an_issue_it_only_looks_round() -> None:
    box = Toolbox()
    brief = make_brief(task=None, config={"pace": 0, "questions": False}, call_tool=box)
    played = play(DEMO, brief)
    assert played.done is not None
    assert played.done.status is None
    assert box.calls == []
