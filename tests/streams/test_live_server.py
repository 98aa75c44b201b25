"""Through the real web server: a stream that is cut in the middle and taken up again."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from agents.models import HeartbeatRun
from companies import live
from companies.models import Company
from tests.api.conftest import Caller
from tests.api.server import serving
from tests.streams.viewing import end, write

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


def read(client: httpx.Client, path: str, count: int, **headers: str) -> list[int]:
    """The ids of the next `count` events; then the line is cut."""
    ids: list[int] = []
    with client.stream("GET", path, headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        for line in response.iter_lines():
            if line.startswith("id: "):
                ids.append(int(line[4:]))
            if len(ids) == count:
                break
    return ids


@pytest.mark.fault("T40", "a stream is cut and goes on")
def test_a_cut_stream_goes_on_where_it_was(
    tmp_path: Path, as_olga: Caller, acme: Company, adas_run: HeartbeatRun
) -> None:
    write(adas_run, *range(1, 31))
    path = f"/api/heartbeat-runs/{adas_run.id}/stream"
    with serving(tmp_path) as address:
        headers = {"Authorization": f"Bearer {as_olga.token}"}
        with httpx.Client(base_url=address, headers=headers, timeout=20) as client:
            first = read(client, path, 12)
            write(adas_run, *range(31, 41))
            end(adas_run)
            live.flush()
            rest = read(client, path, 40 - len(first), **{"Last-Event-ID": str(first[-1])})
            whole = client.get(path)

    assert first + rest == list(range(1, 41))
    assert whole.text.count("event: text") == 40
    assert whole.text.rstrip().rsplit("event: ", 1)[1].startswith("done")


def test_errors_of_streams_are_json(
    tmp_path: Path, as_oscar: Caller, adas_run: HeartbeatRun
) -> None:
    path = f"/api/heartbeat-runs/{adas_run.id}/stream"
    with serving(tmp_path) as address, httpx.Client(base_url=address, timeout=20) as client:
        nobody = client.get(path)
        stranger = client.get(path, headers={"Authorization": f"Bearer {as_oscar.token}"})
        refused = client.post(
            "/api/agent-tasks", json={"agentId": "x", "prompt": "y"},
            headers={"Authorization": f"Bearer {as_oscar.token}", "Accept": "text/event-stream"},
        )  # fmt: skip

    assert (nobody.status_code, nobody.json()["code"]) == (401, "unauthenticated")
    assert (stranger.status_code, stranger.json()["code"]) == (404, "not_found")
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid")
