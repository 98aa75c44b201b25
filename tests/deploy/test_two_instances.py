"""What docs/deploy promises: two instances behind nginx, with pgbouncer, are one system."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest
from pytest_django.plugin import DjangoDbBlocker

from tests.deploy import estate as estates
from tests.deploy.estate import Estate
from tests.house.instance import ROOT, manage, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not (estates.NGINX and estates.PGBOUNCER), reason="nginx or pgbouncer is not installed"
    ),
]

# Tells something, waits until it may go on, tells the rest.
_WAITER = """
import pathlib, sys, time
print("the first half", flush=True)
for _ in range(600):
    if pathlib.Path(sys.argv[1]).exists():
        break
    time.sleep(0.1)
print("the second half", flush=True)
"""


@pytest.fixture(scope="module")
def estate(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Estate]:
    with tempfile.TemporaryDirectory(prefix="paperclip-test-") as folder:
        with estates.running(Path(folder)) as running:
            yield running


@pytest.fixture(scope="module")
def olga(estate: Estate) -> Iterator[httpx.Client]:
    """The operator, who knows the proxy only."""
    done = manage("operator_key", "--email", estates.EMAIL, env=estate.env)
    assert done.returncode == 0, done.stderr
    headers = {"authorization": f"Bearer {done.stdout.strip()}"}
    with httpx.Client(
        base_url=f"{estate.url}/api", headers=headers, timeout=30, trust_env=False
    ) as client:
        yield client


@pytest.fixture(scope="module")
def acme(olga: httpx.Client) -> str:
    return str(olga.post("/companies", json={"name": "Acme"}).json()["id"])


def test_what_one_instance_writes_the_other_reads(
    estate: Estate, olga: httpx.Client, acme: str
) -> None:
    for number in range(10):
        made = olga.post(f"/companies/{acme}/issues", json={"title": f"Issue {number}"})
        assert made.status_code == 201
    for instance in estate.instances:
        direct = f"http://127.0.0.1:{instance.port}/api/companies/{acme}/issues"
        found = httpx.get(direct, headers=dict(olga.headers), trust_env=False).json()
        assert {issue["title"] for issue in found} >= {f"Issue {n}" for n in range(10)}


def test_the_proxy_passes_a_stream_on_piece_by_piece(
    estate: Estate, olga: httpx.Client, acme: str, tmp_path: Path
) -> None:
    """The agent goes on only when the first half of its output has come through."""
    flag = tmp_path / "go-on"
    config = {"command": sys.executable, "args": ["-c", _WAITER, str(flag)]}
    agent = olga.post(
        f"/companies/{acme}/agents",
        json={"name": "Ada", "adapterType": "process", "adapterConfig": config},
    ).json()
    text = ""
    with olga.stream(
        "POST",
        "/agent-tasks",
        json={"agentId": agent["id"], "prompt": "Say it in two halves."},
        headers={"accept": "text/event-stream"},
    ) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            text += line
            if "the first half" in line:
                flag.touch()
    assert "the first half" in text, text
    assert text.index("the first half") < text.index("the second half") < text.index("event: done")


def test_a_caller_cannot_choose_its_own_address(estate: Estate) -> None:
    """Wrong passwords are counted by where they come from, whatever the caller says of it."""
    with httpx.Client(base_url=estate.url, trust_env=False) as client:
        for number in range(3):
            page = client.get("/sign-in")
            client.post(
                "/sign-in",
                data={
                    "csrfmiddlewaretoken": page.text.split('name="csrfmiddlewaretoken" value="')[
                        1
                    ].split('"')[0],
                    "email": "nobody@example.com",
                    "password": "wrong",
                },
                headers={"x-forwarded-for": f"192.0.2.{number}"},
            )
    with psycopg.connect(estate.direct) as database:
        rows = database.execute("SELECT DISTINCT key FROM companies_throttle").fetchall()
    keys = {row[0] for row in rows}
    assert "sign-in:127.0.0.1" in keys
    assert not any("192.0.2." in key for key in keys)


def test_how_the_instances_are_is_not_told_outside(estate: Estate) -> None:
    assert httpx.get(f"{estate.url}/metrics", trust_env=False).status_code == 404
    assert httpx.get(f"{estate.url}/api/health/ready", trust_env=False).status_code == 200


def test_a_rolling_restart_under_load_loses_nothing(estate: Estate) -> None:
    """One instance after the other goes and comes back while users work: every task is done, and
    every user sees its whole answer."""
    load = subprocess.Popen(
        [
            *(sys.executable, ROOT / "manage.py", "load", "--url", estate.url),
            *("--users", "5", "--ramp", "1", "--hold", "600"),
        ],
        env=estate.env,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert wait_for(lambda: _runs(estate) >= 3, seconds=60)
        for instance in estate.instances:
            assert instance.stop() == 0
            instance.start()
            before = _runs(estate)
            assert wait_for(lambda least=before + 3: _runs(estate) >= least, seconds=60)
        assert load.poll() is None, "the load ended before the restart did"
        load.terminate()
        output, errors = load.communicate(timeout=180)
    finally:
        load.kill()
        load.communicate()
    assert load.returncode == 0, errors
    assert " / 0 |" in output, output
    with psycopg.connect(estate.direct) as database:
        lost = database.execute(
            "SELECT count(*) FROM agents_heartbeatrun WHERE status IN ('unknown', 'failed')"
        ).fetchone()
    assert lost == (0,)


def _runs(estate: Estate) -> int:
    """How many runs have ended well."""
    with psycopg.connect(estate.direct) as database:
        row = database.execute(
            "SELECT count(*) FROM agents_heartbeatrun WHERE status = 'succeeded'"
        ).fetchone()
    assert row is not None
    return int(row[0])
