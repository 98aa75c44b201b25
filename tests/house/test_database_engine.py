"""The engine of the settings: what it saves, and what it must not lose."""

from datetime import UTC, datetime

import psycopg
import pytest
from django.db import connection

from agents.meter_models import Counter
from paperclip.database import base
from tests.house.instance import database_address

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def kept(monkeypatch):
    """A connection of its own that is checked before use, as that of a request's thread."""
    mine = connection.copy()
    mine.settings_dict = {**mine.settings_dict, "CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True}
    mine.inc_thread_sharing()
    mine.ensure_connection()
    yield mine
    mine.close()


def ask(mine, sql="SELECT pg_backend_pid()", params=None):
    with mine.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchone()[0]


def next_request(mine):
    mine.close_if_unusable_or_obsolete()


def test_a_kept_connection_is_not_asked_before_it_is_used(kept, monkeypatch):
    def refuse():
        raise AssertionError("the server was asked")

    pid = ask(kept)
    monkeypatch.setattr(kept, "is_usable", refuse)
    next_request(kept)

    assert ask(kept) == pid


def test_a_connection_that_its_server_has_ended_is_opened_again(kept):
    pid = ask(kept)
    with psycopg.connect(database_address(), autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    next_request(kept)

    assert ask(kept) != pid


def test_a_connection_with_a_mere_notice_waiting_is_kept(kept):
    pid = ask(kept)
    ask(kept, "SELECT set_config('application_name', 'x', false)")
    with kept.cursor() as cursor:
        cursor.execute("LISTEN something")
    with psycopg.connect(database_address(), autocommit=True) as other:
        other.execute("NOTIFY something")
    next_request(kept)

    assert ask(kept) == pid


def test_moments_come_in_utc_with_all_their_digits(kept):
    moment = datetime(2026, 12, 1, 4, 5, 6, 789123, tzinfo=UTC)

    for _ in range(8):  # also once the statement is prepared
        found = ask(kept, "SELECT %s::timestamptz", [moment])
        assert found == moment
        assert found.tzinfo is UTC


def test_a_statement_that_comes_again_is_prepared_once(kept):
    for number in range(6):
        assert ask(kept, "SELECT %s::int + 1", [number]) == number + 1

    assert (
        ask(
            kept,
            "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE %s",
            ["SELECT $1::int + 1%"],
        )
        == 1
    )


def test_a_long_result_is_read_through_a_cursor_of_the_server(kept):
    with kept.chunked_cursor() as cursor:
        cursor.execute("SELECT n, now() FROM generate_series(1, %s) AS n", [10])
        rows = cursor.fetchall()

    assert [n for n, _ in rows] == list(range(1, 11))
    assert {at.tzinfo for _, at in rows} == {UTC}


def test_more_rows_than_one_statement_takes_are_written_in_several():
    """Parameters that are bound in the server are counted in sixteen bits."""
    count = base.MOST_PARAMETERS // 3 + 10  # a name, a label and a value each
    Counter.objects.bulk_create(Counter(name="test", label=str(n)) for n in range(count))

    assert Counter.objects.count() == count
