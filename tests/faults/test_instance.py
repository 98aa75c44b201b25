"""kill -9 of what carries the work, on a whole instance under twenty live streams of a model."""

from __future__ import annotations

import os
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from paperclip import postgres
from tests import mock_llm
from tests.faults.processes import until
from tests.flows import office as offices
from tests.flows.office import Office
from tests.house.instance import Instance, manage

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(300)]

STREAMS = 20
ANSWER = " ".join(f"word{number}" for number in range(60))
SLOWLY = f"[[mock:text={ANSWER};chunks=60;delay=0.1]]"
END_SECONDS = 60

ENDS = """
SELECT i.identifier, i.status, i.blocked_reason,
       (SELECT count(*) FROM agents_heartbeatrun r
         WHERE r.issue_id = i.id AND r.status = 'succeeded'),
       (SELECT count(*) FROM agents_heartbeatrun r
         WHERE r.issue_id = i.id AND r.status IN ('queued', 'running')),
       (SELECT count(*) FROM issues_checkout c
         WHERE c.issue_id = i.id AND c.released_at IS NULL),
       ARRAY(SELECT c.body FROM issues_comment c
              WHERE c.issue_id = i.id AND c.author_agent_id IS NOT NULL),
       EXISTS (SELECT FROM issues_comment c WHERE c.issue_id = i.id
                  AND c.author_agent_id IS NULL AND c.author_user_id IS NULL)
  FROM issues_issue i WHERE i.id = ANY (%s)
"""
OPEN = """
SELECT (SELECT count(*) FROM issues_issue
         WHERE id = ANY (%s) AND status NOT IN ('done', 'blocked'))
     + (SELECT count(*) FROM agents_heartbeatrun WHERE status IN ('queued', 'running'))
"""
STREAMING = """
SELECT count(DISTINCT r.id) FROM agents_heartbeatrun r
  JOIN agents_runevent e ON e.run_id = r.id AND e.run_created_at = r.created_at
 WHERE r.issue_id = ANY (%s) AND r.status = 'running' AND e.kind = 'text'
"""
CLAIMED = """
SELECT count(*) FROM agents_heartbeatrun WHERE issue_id = %s AND started_at IS NOT NULL
"""
BUSIEST = """
SELECT w.pid FROM agents_heartbeatrun r JOIN agents_worker w ON w.id = r.worker_id
 WHERE r.status = 'running' GROUP BY w.pid ORDER BY count(*) DESC LIMIT 1
"""


@pytest.fixture(scope="module")
def instance() -> Iterator[Instance]:
    with tempfile.TemporaryDirectory(prefix="paperclip-test-") as folder:
        with offices.instance(Path(folder)) as made:
            yield made
            made.stop()
            assert made.family() == []


@pytest.fixture(scope="module")
def model() -> Iterator[mock_llm.Served]:
    with mock_llm.serve_in_thread() as served:
        yield served


@pytest.fixture(scope="module")
def office(instance: Instance) -> Iterator[Office]:
    with Office(instance) as made:
        yield made


@pytest.fixture(scope="module")
def staff(office: Office, model: mock_llm.Served) -> list[str]:
    config = {"baseUrl": model.url, "model": "mock", "tools": False}
    return [
        office.hire(f"Agent {number}", "openai", config, onFinish="done")
        for number in range(STREAMS)
    ]


def ask(instance: Instance, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Rows straight from the database, which knows more than a web server that may be down."""
    with psycopg.connect(postgres.dsn(instance.data_dir / "pg", "paperclip")) as own:
        return own.execute(statement, values or None).fetchall()


def count(instance: Instance, statement: str, *values: Any) -> int:
    """One figure; -1 while the database is down."""
    try:
        return int(ask(instance, statement, *values)[0][0])
    except psycopg.OperationalError:
        return -1


def find(instance: Instance, victim: str) -> psutil.Process:
    assert instance.process is not None
    if victim == "database":
        return instance.named(str(postgres.socket_dir(instance.data_dir / "pg")))[0]
    if victim == "worker":
        return psutil.Process(ask(instance, BUSIEST)[0][0])
    (parent,) = (
        one
        for one in instance.named("qcluster")
        if one.ppid() == instance.process.pid and one.environ()["Q_CLUSTER_NAME"] == "dispatch"
    )
    if victim == "parent":
        return parent
    (sentinel,) = parent.children()
    return sentinel


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    found = []
    for one in processes:
        try:
            if one.is_running() and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
        except psutil.Error:
            continue
    return found


def strays(instance: Instance) -> list[psutil.Process]:
    """Processes of the instance that do not descend from its one parent."""
    assert instance.process is not None
    found = []
    for one in instance.family():
        try:
            if instance.process.pid not in {parent.pid for parent in one.parents()}:
                found.append(one)
        except psutil.NoSuchProcess:
            continue
    return found


def check_each_done_once_or_failed_visibly(instance: Instance, issues: list[str]) -> Counter[str]:
    ends: Counter[str] = Counter()
    for name, status, reason, succeeded, live, held, words, told in ask(instance, ENDS, issues):
        ends[status] += 1
        assert (live, held) == (0, 0), name
        if status == "done":
            assert (succeeded, words) == (1, [ANSWER]), (name, succeeded, words)
        else:
            assert (status, succeeded, words) == ("blocked", 0, []), (name, status)
            assert reason, name
            assert told, name
    assert ends.total() == STREAMS
    return ends


@pytest.mark.fault("T1", "kill -9 of a part of a whole instance under twenty streams of a model")
@pytest.mark.parametrize("victim", ["worker", "sentinel", "parent", "database"])
def test_kill_9_under_twenty_streams(
    instance: Instance, office: Office, staff: list[str], model: mock_llm.Served, victim: str
) -> None:
    issues = [office.give(agent, "Talk slowly", SLOWLY)["id"] for agent in staff]
    until(lambda: count(instance, STREAMING, issues) == STREAMS, 60, what="twenty live streams")
    assert model.state.open_streams == STREAMS
    process = find(instance, victim)
    lost = [process, *process.children(recursive=True)]
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: alive(lost) == [], 15, what=f"all that belonged to the {victim} gone")
    until(lambda: count(instance, OPEN, issues) == 0, END_SECONDS, what="all ended", look=0.2)
    ends = check_each_done_once_or_failed_visibly(instance, issues)
    assert ends["done"] >= 1
    assert model.state.open_streams == 0
    until(instance.serves, 30, what="the pages")
    until(lambda: strays(instance) == [], 10, what="no process on its own")


@pytest.mark.fault("DQ-12", "kill -9 of the dispatch cluster's parent while runs wait")
def test_runs_that_wait_when_the_parent_dies_are_claimed_soon(
    instance: Instance, office: Office, staff: list[str], figures: dict[str, Any]
) -> None:
    parent = find(instance, "parent")
    members = [parent, *parent.children(recursive=True)]
    os.kill(parent.pid, signal.SIGKILL)
    until(lambda: alive(members) == [], 15, what="the whole cluster gone")
    issue = office.give(staff[0], "Say a word", "[[mock:text=word]]")["id"]
    took = until(lambda: count(instance, CLAIMED, issue) == 1, 30, what="the claim")
    figures["seconds from the wake to the claim"] = round(took, 1)
    until(lambda: count(instance, OPEN, [issue]) == 0, 30, what="the end")


def test_the_books_balance_after_all_of_it(instance: Instance, office: Office) -> None:
    done = manage("billing_check", env=instance.env)
    assert done.returncode == 0, done.stdout + done.stderr
