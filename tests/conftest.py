"""What every test stands on: a PostgreSQL of our own."""

import os
from collections.abc import Iterator

import pytest
from django.conf import settings
from django.db import connections

from companies import live
from paperclip import postgres

pytest_plugins = ["tests.cast"]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[None]:
    """The database server of this session; with DATABASE_URL the one that is given."""
    # A worker of pytest-xdist uses the server that its controller started.
    if settings.DATABASE_URL or "PYTEST_XDIST_WORKER" in os.environ:
        yield
        return
    server = postgres.start(settings.TEST_PG_DIR, for_tests=True)
    try:
        postgres.create_database(settings.TEST_PG_DIR, "paperclip")
        yield
    finally:
        connections.close_all()
        server.stop()


@pytest.fixture(scope="session")
def django_db_setup(postgres_server: None, django_db_setup: None) -> Iterator[None]:
    """Django's test database, made on that server."""
    yield
    live.close()  # its connection would keep the database from being dropped
