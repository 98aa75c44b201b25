"""Django's PostgreSQL engine, cheaper for threads that keep their connection.

A request runs a handful of statements, so what happens around each of them counts. Three things
differ from Django's own engine; queries, errors and transactions are the same:

- a kept connection is looked at before use, not asked: no `SELECT 1` in front of each request;
- moments are read by psycopg's compiled loader, not in Python;
- the settings bind parameters in the server and prepare what comes again (`server_side_binding`,
  `prepare_threshold`), so that PostgreSQL parses and plans a hot statement once a connection.
"""

import select
from collections.abc import Sequence
from typing import Any

import psycopg
from django.db.backends.postgresql import base, operations
from psycopg.pq import Format

MOST_PARAMETERS = 65_535  # of one statement, in PostgreSQL's protocol
_MOMENT = psycopg.adapters.types["timestamptz"].oid
_READ_MOMENT = psycopg.adapters.get_loader(_MOMENT, Format.TEXT)


class DatabaseOperations(operations.DatabaseOperations):
    def bulk_batch_size(self, fields: Sequence[Any], objs: Sequence[Any]) -> int:
        """How many rows fit into one statement: parameters bound in the server are counted."""
        return min(len(objs), max(1, MOST_PARAMETERS // max(1, len(fields))))


class DatabaseWrapper(base.DatabaseWrapper):
    """A connection of one thread; its session is in UTC, and so are all moments it gives."""

    health_check_enabled: bool
    health_check_done: bool

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        connection = super().get_new_connection(conn_params)
        if _READ_MOMENT is not None:
            connection.adapters.register_loader("timestamptz", _READ_MOMENT)
        return connection

    def create_cursor(self, name: str | None = None) -> Any:
        """Returns a cursor without Django's look at its own loader of moments."""
        if name is None:
            return self.connection.cursor()
        return self.connection.cursor(name, scrollable=False, withhold=self.connection.autocommit)

    def close_if_health_check_failed(self) -> None:
        """Closes a kept connection that its server has left.

        A server that ends a session says so and closes the socket, so a quiet socket is a healthy
        one. Only when something waits in it is the server really asked.
        """
        if self.connection is None or not self.health_check_enabled or self.health_check_done:
            return
        if _is_quiet(self.connection):
            self.health_check_done = True
        else:
            super().close_if_health_check_failed()


def _is_quiet(connection: psycopg.Connection[Any]) -> bool:
    if connection.closed:
        return False
    socket = select.poll()
    socket.register(connection.fileno(), select.POLLIN)
    return not socket.poll(0)
