"""The table of runs is cleared where nobody else does it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection, transaction

from agents.models import HeartbeatRun
from paperclip.engine import upkeep
from tests import factories

pytestmark = pytest.mark.django_db(transaction=True)

ROWS = 200


@pytest.fixture(autouse=True)
def nobody_vacuums(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Autovacuum is off, and a few dead rows count; what was cleared by others is forgotten."""
    monkeypatch.setattr(upkeep, "DEAD_ROWS", ROWS)
    monkeypatch.setattr(upkeep, "SPACING_SECONDS", 0)
    monkeypatch.setattr(upkeep, "_paused_until", float("-inf"))
    ask(f"ALTER TABLE {upkeep.TABLE} SET (autovacuum_enabled = off)")
    ask(f"VACUUM {upkeep.TABLE}")
    yield
    ask(f"ALTER TABLE {upkeep.TABLE} RESET (autovacuum_enabled)")


def ask(statement: str) -> list[tuple[int, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else []


def churn(agent, times: int = ROWS + 1) -> None:
    """Versions of one run, all but the last of them dead."""
    run = factories.run(agent, status="queued")
    for number in range(times):
        HeartbeatRun.objects.filter(pk=run.pk).update(priority=number % 5)
    ask("SELECT pg_stat_force_next_flush()")


def dead() -> int:
    ask("SELECT pg_stat_force_next_flush()")
    [(count,)] = ask(f"SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = '{upkeep.TABLE}'")
    return count


def test_what_nobody_clears_is_cleared_once(ada):
    churn(ada)
    assert dead() > ROWS

    assert upkeep.clear()
    assert dead() == 0
    assert not upkeep.clear()


def test_its_indexes_and_its_figures_are_cleared_with_it(ada):
    churn(ada)
    upkeep.clear()

    [(live,)] = ask(f"SELECT reltuples FROM pg_class WHERE relname = '{upkeep.TABLE}'")
    [(entries,)] = ask("SELECT reltuples FROM pg_class WHERE relname = 'run_queue'")
    assert (live, entries) == (1, 1)


def test_a_few_are_left_to_autovacuum(ada):
    churn(ada, times=10)

    assert not upkeep.clear()
    assert dead() == 10


def test_what_was_cleared_a_moment_ago_is_not_cleared_again(ada, monkeypatch):
    churn(ada)
    monkeypatch.setattr(upkeep, "SPACING_SECONDS", 3_600)

    assert not upkeep.clear()
    assert dead() > ROWS


def test_inside_a_transaction_nothing_is_tried(ada):
    churn(ada)
    with transaction.atomic():
        assert not upkeep.clear()
    assert upkeep.clear()


def test_what_takes_too_long_is_left_for_an_hour(ada, monkeypatch, caplog):
    churn(ada)
    with monkeypatch.context() as patch:
        patch.setattr(upkeep, "_CLEAR", "SELECT pg_sleep(60)")
        patch.setattr(upkeep, "LONGEST_SECONDS", 0.05)
        assert not upkeep.clear()

    assert "could not clear" in caplog.text
    assert not upkeep.clear()
    assert dead() > ROWS
