"""The log: each message at most once a second with a count, ids on every line, JSON on request."""

from __future__ import annotations

import asyncio
import io
import json
import logging

import pytest
import structlog

from paperclip import logs, supervisor
from paperclip.engine.hands import Hands


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Log:
    """A logger that writes as the product's does, into a string."""

    def __init__(self, log_format: str = "text") -> None:
        self.clock = Clock()
        self.out = io.StringIO()
        self.handler = logs.Stderr(self.out, logs.Throttle(clock=self.clock))
        self.handler.setFormatter(logs.formatter(log_format))
        self.logger = logging.Logger("engine", logging.INFO)
        self.logger.addHandler(self.handler)

    @property
    def lines(self) -> list[str]:
        return self.out.getvalue().splitlines()

    @property
    def objects(self) -> list[dict]:
        return [json.loads(line) for line in self.lines]


@pytest.fixture(autouse=True)
def _nothing_bound():
    structlog.contextvars.clear_contextvars()
    yield
    structlog.contextvars.clear_contextvars()


def test_the_same_message_is_written_once_a_second_with_a_count():
    log = Log()
    for _ in range(1_000):
        log.logger.warning("cannot claim: %s", "no route")
        log.clock.now += 0.01
    assert len(log.lines) == 10
    assert log.lines[0] == "WARNING engine: cannot claim: no route"
    assert log.lines[1] == "WARNING engine: cannot claim: no route (99 more like it)"


def test_other_messages_levels_and_loggers_are_not_held_back():
    log = Log()
    other = logging.Logger("billing")
    other.addHandler(log.handler)
    for n in range(3):
        log.logger.warning("run %s: gone", n)
    log.logger.error("run %s: gone", 1)
    other.warning("run %s: gone", 1)
    assert len(log.lines) == 5


def test_what_has_no_successor_is_told_with_the_next_line_and_at_the_end():
    log = Log()
    for _ in range(5):
        log.logger.warning("no beat")
    log.clock.now += 2
    log.logger.warning("another matter")
    assert log.lines[1:] == [
        "WARNING engine: no beat (3 more like it)",
        "WARNING engine: another matter",
    ]
    log.logger.warning("another matter")
    log.handler.close()
    assert log.lines[-1] == "WARNING engine: another matter"
    assert len(log.lines) == 4


def test_it_remembers_no_more_than_its_bound(monkeypatch):
    monkeypatch.setattr(logs, "MOST_REMEMBERED", 50)
    log = Log()
    for n in range(1_000):
        log.logger.warning("run %s", n)
    assert len(log.lines) == 1_000
    assert len(log.handler.throttle._seen) <= 50


def test_a_database_that_is_away_for_ten_minutes_costs_few_lines():
    log = Log()
    for _ in range(60_000):  # a hundred a second
        log.logger.warning("the database does not answer")
        log.clock.now += 0.01
    assert len(log.lines) <= 601
    assert len(log.out.getvalue()) < 600 * 80


def test_json_is_one_object_a_line_with_the_ids_of_the_run():
    log = Log("json")
    logs.about(run_id="r1", company_id="c1", agent_id="a1", issue_id=None)
    log.logger.warning("stale_write_blocked run=%s", "r1")
    (said,) = log.objects
    assert said.pop("timestamp").endswith("Z")
    assert said == {
        "event": "stale_write_blocked run=r1",
        "level": "warning",
        "logger": "engine",
        "run_id": "r1",
        "company_id": "c1",
        "agent_id": "a1",
    }


def test_json_stays_one_line_whatever_is_in_it():
    log = Log("json")
    try:
        raise ValueError("a\nb")
    except ValueError:
        log.logger.exception("line one\nline two", extra={"issue_id": 7})
    (said,) = log.objects
    assert said["event"] == "line one\nline two"
    assert "ValueError: a\nb" in said["exception"]
    assert said["issue_id"] == "7"


def test_text_stays_one_line_whatever_others_put_into_it():
    """Addresses, names and answers come from outside: none of them writes a line of ours."""
    log = Log()
    log.logger.error("%s failed", "/api/x\r\nERROR engine: all is lost\u2028\x1b[2J\x85")
    assert log.out.getvalue() == (
        "ERROR engine: /api/x\\r\\nERROR engine: all is lost\\u2028\\x1b[2J\\x85 failed\n"
    )
    log.logger.error("Zoë\tpaid 3 €")
    assert log.lines[-1] == "ERROR engine: Zoë\tpaid 3 €"


def test_text_names_the_run_unless_the_message_does():
    log = Log()
    logs.about(run_id="r1", agent_id="a1")
    log.logger.warning("a fault")
    log.logger.warning("run r1: a fault")
    assert log.lines == [
        "WARNING engine: a fault run=r1 agent=a1",
        "WARNING engine: run r1: a fault agent=a1",
    ]


def test_a_traceback_stands_below_its_line():
    log = Log()
    try:
        raise ValueError("no")
    except ValueError:
        log.logger.exception("a fault")
    assert log.lines[0] == "ERROR engine: a fault"
    assert log.lines[-1] == "ValueError: no"


def test_a_message_that_does_not_fit_its_arguments_ends_nothing(monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)
    log = Log()
    log.logger.warning("%s and %s", "one")
    log.logger.warning("fine")
    assert log.lines == ["WARNING engine: fine"]


def test_the_threads_that_work_for_a_run_write_its_ids():
    log = Log("json")

    async def carry(run_id: str) -> None:
        logs.about(run_id=run_id)
        await hands.call(log.logger.warning, "here")

    async def both() -> None:
        await asyncio.gather(carry("r1"), carry("r2"))

    hands = Hands(1, "test")
    asyncio.run(both())
    hands.close()
    # The same text of two runs is the same message: the second is held back, and told at the end.
    assert len(log.lines) == 1
    log.handler.close()
    assert {line["run_id"] for line in log.objects} == {"r1", "r2"}


def test_the_parent_names_the_process_in_json_and_wraps_what_is_none(settings, capsys):
    settings.LOG_FORMAT = "json"
    supervisor.print_line("web", '{"event": "hello", "level": "warning"}')
    supervisor.print_line("web", "[WARNING] not {json}")
    supervisor.print_line("web", "{not json")
    supervisor.print_line("up", '["a list"]')
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        {"event": "hello", "level": "warning", "process": "web"},
        {"event": "[WARNING] not {json}", "process": "web"},
        {"event": "{not json", "process": "web"},
        {"event": '["a list"]', "process": "up"},
    ]


def test_the_products_own_log_is_this_one(settings):
    handler = settings.LOGGING["handlers"][settings.LOGGING["root"]["handlers"][0]]
    assert handler["class"] == "paperclip.logs.Stderr"
