"""Runs whose answer was lost: a model is asked three times more, a service's work is for people."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from agents.models import HeartbeatRun
from issues import inbox
from tests import factories
from tests.engine.conftest import until
from tests.providers.test_runs import carried, following  # noqa: F401 - a fixture

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def empty_service() -> Iterator[str]:
    """A web service that answers 200 and says nothing."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("cut", ["empty", "half", "reset"])
def test_a_model_is_asked_three_times_more_and_then_the_run_has_failed(
    carried: Any,  # noqa: F811
    during: Any,
    acme: Any,
    mock_llm: Any,
    cut: str,
) -> None:
    agent = factories.agent(
        acme,
        "Pia",
        adapter_type="openai",
        adapter_config={"baseUrl": mock_llm.url, "model": "mock"},
    )
    (run,) = carried((agent, f"[[mock:whole=1;cut={cut}]]"))
    while (after := following(run)) is not None:
        run = after
        HeartbeatRun.objects.filter(pk=run.pk).update(not_before=timezone.now())
        over = HeartbeatRun.objects.filter(pk=run.pk).exclude(status__in=HeartbeatRun.LIVE)

        async def watch(shift: Any) -> None:
            await until(lambda: over.exists())  # noqa: B023 - awaited in this round

        during(watch)
        run.refresh_from_db()

    assert (run.status, run.code, run.attempt) == ("failed", "stream_broken", 3)
    assert len(mock_llm.state.posts) == 4
    assert run.issue is not None
    assert run.issue.status == "blocked"


def test_what_a_service_did_is_unknown_and_one_click_runs_it_again(
    carried: Any,  # noqa: F811
    acme: Any,
    olga: Any,
    empty_service: str,
) -> None:
    agent = factories.agent(acme, "Pia", adapter_type="http", adapter_config={"url": empty_service})
    (run,) = carried((agent, "Count the boats."))

    assert (run.status, run.code) == ("unknown", "stream_broken")
    assert following(run) is None
    waiting = inbox.for_operators(acme.pk, now=timezone.now())
    assert [item.run for item in waiting if item.kind == "failed"] == [run]

    browser = Client()
    browser.force_login(olga)
    page = browser.get(f"/c/ACM/runs/{run.pk}").content.decode()
    assert f'action="/c/ACM/runs/{run.pk}/retry"' in page
    browser.post(f"/c/ACM/runs/{run.pk}/retry")

    again = following(run)
    assert again is not None
    assert again.status == "queued"
