"""Receipts for tests: what a model call used, in one line."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import OperationalError, connection

from agents.adapters.base import Usage
from agents.models import Agent
from billing import ledger


def usage(cost_micros: int | None = 100, **fields: Any) -> Usage:
    """A call that cost what the provider said; None: the price list decides."""
    return Usage(
        **{
            "call": 1,
            "provider": "openrouter",
            "model": "made-up-1",
            "input_tokens": 10,
            "output_tokens": 5,
            "cost_micros": cost_micros,
            **fields,
        }
    )


def book(agent: Agent, key: str, cost_micros: int | None = 100, **fields: Any) -> ledger.Booked:
    """Book one receipt for an agent. `usage_*` goes to the usage, the rest to `ledger.book`."""
    used = {name[6:]: fields.pop(name) for name in list(fields) if name.startswith("usage_")}
    return ledger.book(
        company_id=agent.company_id,
        agent_id=agent.id,
        key=key,
        usage=usage(cost_micros, **used),
        **fields,
    )


def at_once(tasks: list[Callable[[], Any]], workers: int = 8) -> list[Any]:
    """Carry out all tasks on so many threads, each with its own connection, released together.

    The results come in the order of the tasks; a task's exception is its result.
    """
    waiting = list(enumerate(tasks))
    results: list[Any] = [None] * len(tasks)
    gate = threading.Barrier(workers)

    def carry() -> None:
        try:
            gate.wait(timeout=30)
            while True:
                try:
                    number, task = waiting.pop()
                except IndexError:
                    return
                try:
                    results[number] = task()
                except Exception as error:
                    results[number] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=carry) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=110)
    return results


@contextmanager
def answer_lost(statement: str) -> Iterator[None]:
    """The database carries out a statement of its own transaction, and its answer never comes."""

    def cut(execute: Any, sql: str, parameters: Any, many: bool, context: Any) -> Any:
        answer = execute(sql, parameters, many, context)
        if statement in sql:
            connection.close()
            raise OperationalError("the connection is gone")
        return answer

    with connection.execute_wrapper(cut):
        yield


@contextmanager
def altered(function: str, old: str, new: str) -> Iterator[None]:
    """One of the database's functions with a piece of it replaced."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_functiondef(%s::regproc)", [function])
        original = cursor.fetchone()[0]
        assert old in original
        cursor.execute(original.replace(old, new))
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(original)
