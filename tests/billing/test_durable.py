"""Locks are let go before the disk has answered; the caller is not."""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from billing import durable


def synchronous_commit() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW synchronous_commit")
        return str(cursor.fetchone()[0])


@pytest.mark.django_db(transaction=True)
def test_only_its_own_commit_does_not_wait() -> None:
    usual = synchronous_commit()
    with durable.transaction_with_short_locks():
        assert synchronous_commit() == "off"
    assert synchronous_commit() == usual


@pytest.mark.django_db(transaction=True)
def test_a_callers_transaction_commits_as_it_always_does() -> None:
    with transaction.atomic():
        usual = synchronous_commit()
        with durable.transaction_with_short_locks():
            assert synchronous_commit() == usual


@pytest.mark.django_db(transaction=True)
def test_what_fails_inside_is_rolled_back() -> None:
    with pytest.raises(RuntimeError), durable.transaction_with_short_locks():
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE short_lived (n int)")
        raise RuntimeError("power cut")
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('short_lived')")
        assert cursor.fetchone() == (None,)
