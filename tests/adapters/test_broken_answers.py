"""An answer that comes whole or not at all, and does not come: asked for again, a few times."""

import pytest

from agents import adapters
from agents.adapters.base import Code
from agents.adapters.line import MAX_BROKEN_REPEATS
from tests.adapters.conftest import Played, make_brief, play
from tests.mock_llm import Served

CUTS = pytest.mark.parametrize("cut", ["empty", "half", "reset"])


@pytest.fixture(params=["openai", "anthropic"])
def ask(request: pytest.FixtureRequest, mock_llm: Served):
    def asked(prompt: str, attempt: int = 1) -> Played:
        settings = {"baseUrl": mock_llm.url, "model": "mock", "apiKeySecret": "KEY"}
        config = adapters.validate(request.param, settings)
        brief = make_brief(f"[[mock:whole=1;{prompt}]]", config=config, attempt=attempt)
        return play(adapters.get(request.param), brief)

    return asked


@CUTS
def test_it_is_asked_for_once_more(ask, cut: str, mock_llm: Served) -> None:
    played = ask(f"cut={cut};times=1;text=ok")
    assert played.error is None
    assert played.text() == "ok"
    assert len(mock_llm.state.posts) == 2
    assert len(played.usages) == 1


@CUTS
def test_then_it_is_the_providers_fault_and_for_the_schedule(
    ask, cut: str, mock_llm: Served
) -> None:
    error = ask(f"cut={cut}").error
    assert error is not None
    assert (error.code, error.acted, error.unknown) == (Code.STREAM_BROKEN, False, False)
    assert len(mock_llm.state.posts) == 1 + MAX_BROKEN_REPEATS


@CUTS
def test_a_run_that_repeats_another_asks_once(ask, cut: str, mock_llm: Served) -> None:
    assert ask(f"cut={cut}", attempt=2).error is not None
    assert len(mock_llm.state.posts) == 1
