"""A command-line agent is called, watched, resumed, stopped and understood."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import psutil
import pytest

from agents import adapters
from agents.adapters import cli_watch
from agents.adapters.base import Brief, Code, Started, Text, Usage
from tests.adapters.cli.conftest import RUN_TOKEN, Stage, alive
from tests.adapters.conftest import Played, play

CLAUDE = adapters.get("claude_local")
SESSION = "11111111-2222-4333-8444-555555555555"  # of the stand-in


def marked(brief: Brief) -> list[int]:
    """Processes that carry the run's mark."""
    mark = f"PAPERCLIP_RUN_ID={brief.run_id}".encode()
    found = []
    for pid in psutil.pids():
        try:
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
        except OSError:
            continue
    return found


def run(brief: Brief) -> Played:
    played = play(CLAUDE, brief)
    assert marked(brief) == []
    return played


# --- calling -------------------------------------------------------------------------------------


def test_the_work_comes_on_standard_input_and_never_as_an_argument(stage: Stage) -> None:
    played = run(stage.brief())

    assert played.done is not None
    (call,) = stage.calls
    for said in ("You are Ada", "Be brief.", "Look after the boats.", "Please hurry."):
        assert said in call["prompt"]
        assert said not in " ".join(call["argv"])
    assert RUN_TOKEN not in call["prompt"] + " ".join(call["argv"])


def test_the_environment_is_made_from_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://secret")
    monkeypatch.setenv("CLAUDECODE", "1")

    run(stage.brief(env={"MINE": "yes", "BOUND": {"secret": "SECRET"}}))

    (call,) = stage.calls
    env = call["env"]
    assert {"DATABASE_URL", "CLAUDECODE"}.isdisjoint(env)
    assert env["MINE"] == "yes"
    assert env["BOUND"] == "s3cret-value-of-acme"
    assert env["PAPERCLIP_API_KEY"] == RUN_TOKEN
    assert env["HOME"] == str(stage.root / "agent" / "claude_local")
    assert env["CLAUDE_CONFIG_DIR"].startswith(env["HOME"])
    assert env["CLAUDE_CODE_MAX_RETRIES"] == "2"
    assert env["PWD"] == str(stage.root / "workspace")


def test_the_operators_environment_has_the_last_word_but_for_the_runs_own(stage: Stage) -> None:
    run(stage.brief(env={"CLAUDE_CONFIG_DIR": "/elsewhere"}))

    assert stage.calls[0]["env"]["CLAUDE_CONFIG_DIR"] == "/elsewhere"
    with pytest.raises(adapters.ConfigError):
        adapters.validate("claude_local", {"env": {"PAPERCLIP_API_KEY": "mine"}})


def test_nothing_is_bypassed_unless_it_is_said(stage: Stage) -> None:
    run(stage.brief())
    run(stage.brief(dangerouslySkipPermissions=True))

    plain, bypassed = (call["argv"] for call in stage.calls)
    assert plain[plain.index("--permission-mode") + 1] == "acceptEdits"
    assert "--dangerously-skip-permissions" not in plain
    assert "--dangerously-skip-permissions" in bypassed


def test_the_version_is_shown_with_the_first_sign_of_life(stage: Stage) -> None:
    played = run(stage.brief())

    (started,) = played.of(Started)
    assert started.session_id == SESSION
    assert started.model == "claude-fake"
    assert played.done is not None
    assert played.done.result["version"] == "9.8.7"


def test_a_program_that_is_not_there_is_said_to_be_so(stage: Stage) -> None:
    played = run(stage.brief(command="/nowhere/claude"))

    assert played.error is not None
    assert played.error.code is Code.NOT_INSTALLED


def test_a_secret_without_a_value_ends_the_run_before_it_begins(stage: Stage) -> None:
    played = run(stage.brief(env={"X": {"secret": "GONE"}}))

    assert played.error is not None
    assert played.error.code is Code.CONFIG_INVALID
    assert stage.calls == []


# --- understanding -------------------------------------------------------------------------------


def test_the_closing_message_asks_for_a_status(stage: Stage) -> None:
    played = run(stage.brief("answer All boats are in.\\n\\nStatus: in review"))

    assert played.done is not None
    assert played.done.summary == "All boats are in."
    assert played.done.status == "in_review"


def test_the_use_is_booked_and_priced_by_its_vendor(stage: Stage) -> None:
    (usage,) = run(stage.brief()).usages

    assert (usage.provider, usage.model) == ("anthropic", "claude-fake")
    assert (usage.input_tokens, usage.output_tokens) == (100, 10)
    assert usage.cost_micros == 500_000


def test_another_address_has_another_price(stage: Stage) -> None:
    (usage,) = run(stage.brief(env={"ANTHROPIC_BASE_URL": "http://llm.acme.test/"})).usages

    assert (usage.provider, usage.cost_micros) == ("llm.acme.test", None)


def test_secrets_are_masked_wherever_they_are_printed(stage: Stage) -> None:
    played = run(stage.brief("leak", env={"SECRET": {"secret": "SECRET"}}))

    shown = str(played.events)
    assert RUN_TOKEN not in shown
    assert "s3cret-value-of-acme" not in shown
    assert shown.count("[redacted]") >= 8
    assert played.done is not None
    assert played.done.summary == "[redacted] [redacted]"


def test_silence_and_exit_code_0_are_no_success(stage: Stage) -> None:
    played = run(stage.brief("silent"))

    assert played.error is not None
    assert played.error.code is Code.BAD_RESULT
    assert not played.error.acted


def test_a_step_that_was_cut_off_does_not_stay_open(stage: Stage) -> None:
    played = run(stage.brief("open"))

    assert [step.phase for step in played.steps] == ["start", "end"]
    assert played.steps[1].is_error
    assert played.error is not None
    assert played.error.code is Code.EXIT_NONZERO
    assert played.error.acted
    assert [usage.source for usage in played.usages] == ["estimated"]


# --- sessions ------------------------------------------------------------------------------------


def session_of(played: Played) -> dict[str, object]:
    assert played.done is not None
    return dict(played.done.result["session"])


def test_the_next_run_goes_on_with_the_session(stage: Stage) -> None:
    kept = session_of(run(stage.brief()))

    went_on = session_of(run(stage.brief(session=kept)))

    first, second = stage.calls
    assert "--resume" not in first["argv"]
    assert second["argv"][-2:] == ["--resume", SESSION]
    assert "You go on with your earlier conversation" in second["prompt"]
    assert (kept["runs"], went_on["runs"]) == (1, 2)


def test_a_session_that_is_gone_is_dropped_and_the_run_goes_on(stage: Stage) -> None:
    kept = {**session_of(run(stage.brief())), "note": "Counted to seven."}

    played = run(stage.brief("forget", session=kept))

    assert played.done is not None
    _, resumed, fresh = stage.calls
    assert "--resume" in resumed["argv"]
    assert "--resume" not in fresh["argv"]
    assert "Counted to seven." in fresh["prompt"]
    assert "does not know the old one" in played.text("stderr")
    assert session_of(played)["runs"] == 1


def test_a_session_of_another_folder_is_not_even_tried(stage: Stage) -> None:
    kept = session_of(run(stage.brief()))
    (stage.root / "workspace" / "sub").mkdir()

    played = run(stage.brief(session=kept, cwd="sub"))

    assert "--resume" not in stage.calls[1]["argv"]
    assert "the folder is another one" in played.text("stderr")


def test_a_changed_configuration_begins_a_fresh_session(stage: Stage) -> None:
    kept = session_of(run(stage.brief()))

    played = run(stage.brief(session=kept, model="another"))

    assert "--resume" not in stage.calls[1]["argv"]
    assert "the configuration changed" in played.text("stderr")


@pytest.mark.parametrize("id_", ["ses_abc", "--help", "../../etc", "x" * 10_000])
def test_an_id_of_another_kind_never_reaches_the_program(stage: Stage, id_: str) -> None:
    played = run(stage.brief(session={"id": id_}))

    assert played.done is not None
    assert "--resume" not in stage.calls[0]["argv"]


@pytest.mark.parametrize(
    ("status", "code", "goes_on"),
    [
        (429, Code.RATE_LIMITED, True),
        (529, Code.PROVIDER_OVERLOADED, True),
        (400, Code.BAD_REQUEST, False),
        (401, Code.AUTH_FAILED, False),
    ],
)
def test_only_after_a_passing_failure_the_session_goes_on(
    stage: Stage, status: int, code: Code, goes_on: bool
) -> None:
    played = run(stage.brief(f"fail {status}"))

    assert played.error is not None
    assert played.error.code is code
    assert ("session" in played.error.detail) is goes_on


# --- watching ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("do", "config", "code"),
    [
        ("hang", {"timeoutSec": 0.5}, Code.TIMED_OUT),
        ("hang", {"idleTimeoutSec": 0.5}, Code.IDLE),
        ("chatter", {"maxOutputBytes": 20_000}, Code.OUTPUT_LIMIT),
        ("chatter", {"maxOutputLines": 200}, Code.OUTPUT_LIMIT),
        ("circle", {"maxStepsPerMinute": 20}, Code.TURN_LIMIT),
    ],
)
def test_what_goes_over_a_limit_is_ended(
    stage: Stage, do: str, config: dict[str, float], code: Code
) -> None:
    played = run(stage.brief(do, graceSec=1, **config))

    assert played.error is not None
    assert played.error.code is code


def test_a_limit_is_always_set(stage: Stage) -> None:
    for wrong in ({"timeoutSec": 0}, {"idleTimeoutSec": 0}):
        with pytest.raises(adapters.ConfigError):
            adapters.validate("claude_local", wrong)


def test_a_program_that_said_its_last_word_is_not_waited_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_watch, "LINGER_SECONDS", 0.3)

    played = run(stage.brief("linger"))

    assert played.done is not None
    assert played.done.summary == "Fine."


def test_the_time_limit_is_the_runs_and_not_that_of_each_start(stage: Stage) -> None:
    """The session is gone after 1.5 s of 2.5: the second start has the rest, some ten ticks."""
    kept = run(stage.brief()).done
    assert kept is not None
    ticks = stage.root / "ticks"

    played = run(stage.brief(f"dawdle {ticks}", session=kept.result["session"], timeoutSec=2.5))

    assert played.error is not None
    assert played.error.code is Code.TIMED_OUT
    assert played.error.message == "The run took longer than 2.5 seconds."
    assert len(stage.calls) == 3
    assert 0 < len(ticks.read_text().splitlines()) < 20


# --- stopping ------------------------------------------------------------------------------------


def cancel_when(brief: Brief, said: str) -> list[Usage]:
    """Cancel the run once it said this; what was booked at its end."""
    booked: list[Usage] = []
    object.__setattr__(brief, "book_usage", booked.append)

    async def work() -> None:
        heard = asyncio.Event()

        async def follow() -> None:
            async with aclosing(CLAUDE.run(brief)) as events:
                async for event in events:
                    if isinstance(event, Text) and said in event.text:
                        heard.set()

        task = asyncio.create_task(follow())
        await asyncio.wait_for(heard.wait(), 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    assert marked(brief) == []
    return booked


def test_a_cancelled_program_may_still_say_what_it_used(stage: Stage) -> None:
    (usage,) = cancel_when(stage.brief("interruptible"), "Working")

    assert usage.source == "reported"
    assert (usage.input_tokens, usage.output_tokens) == (100, 10)


def test_cancelling_ends_what_left_the_session_and_the_tree(stage: Stage) -> None:
    pid_file = stage.root / "pid"

    (usage,) = cancel_when(stage.brief(f"daemon {pid_file}", graceSec=1), "Working")

    assert not alive(pid_file)
    assert usage.source == "estimated"


def test_what_a_finished_program_leaves_behind_is_ended(stage: Stage) -> None:
    pid_file = stage.root / "pid"

    played = run(stage.brief(f"leftover {pid_file}"))

    assert played.done is not None
    assert not alive(pid_file)
