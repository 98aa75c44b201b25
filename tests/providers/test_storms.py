"""Nothing hammers a provider: one layer of repeats, bounded attempts, waits within reason."""

from __future__ import annotations

import random

import httpx
import pytest

from agents import outcomes
from agents.adapters import failures
from agents.adapters.base import Code
from agents.adapters.openai import OpenAI
from tests.adapters.conftest import make_brief, play


def ask(mock_llm, prompt):
    return play(OpenAI(), make_brief(prompt, config={"baseUrl": mock_llm.url, "model": "m"}))


def test_two_429_and_then_an_answer_is_a_success(mock_llm):
    played = ask(mock_llm, "[[mock:status=429;times=2]]")
    assert played.done is not None
    assert len(mock_llm.state.posts) == 3


@pytest.mark.parametrize("status", [429, 503])
def test_a_call_is_made_three_times_and_no_hidden_layer_repeats_it(mock_llm, status):
    played = ask(mock_llm, f"[[mock:status={status}]]")
    assert played.error is not None
    assert len(mock_llm.state.posts) == 3


@pytest.mark.parametrize("code", list(Code))
def test_a_failure_that_comes_back_at_once_makes_few_runs_in_two_hours(code):
    clock, attempts = 0.0, 1
    while clock < 7200:
        wait = outcomes.retry_in(code, attempt=attempts, rng=random.Random(1))
        if wait is None:
            break
        clock += wait
        attempts += 1
    assert attempts <= 8


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("120", 120.0), ("0", 0.0), ("-5", None), ("abc", None), ("99999999", 7 * 86_400.0)],
)
def test_a_retry_after_is_seconds_a_week_at_most_or_nothing(text, seconds):
    assert failures.retry_after(httpx.Headers({"retry-after": text})) == seconds


def test_a_retry_after_may_be_a_date():
    headers = httpx.Headers({"retry-after": "Thu, 01 Jan 1970 00:02:00 GMT"})
    assert failures.retry_after(headers, now=60.0) == 60.0


def test_a_reset_that_is_named_is_waited_for_and_not_the_table():
    for seed in range(50):
        wait = outcomes.retry_in(
            Code.QUOTA_EXHAUSTED, attempt=1, retry_after=63, rng=random.Random(seed)
        )
        assert wait is not None
        assert 63 <= wait <= 93
