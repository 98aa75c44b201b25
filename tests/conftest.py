"""What every test stands on: a PostgreSQL of our own, and a browser where one is wanted."""

import os
import shutil
from collections.abc import Iterator

import pytest
from django.conf import settings
from django.db import connections

from companies import live
from paperclip import postgres

pytest_plugins = ["tests.cast", "tests.faults.record"]

CHROMIUM = os.environ.get("PAPERCLIP_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skips the browser tests where there is no browser."""
    if CHROMIUM:
        return
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.skip(reason="no Chromium on this machine"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says so loudly: a green run without them has shown less."""
    if not CHROMIUM:
        terminalreporter.section("BROWSER TESTS SKIPPED", red=True, bold=True)
        terminalreporter.line("No Chromium was found: install it, or set PAPERCLIP_CHROMIUM.")


@pytest.fixture(scope="session")
def browser_type_launch_args() -> dict[str, object]:
    """How pytest-playwright starts the browser: the machine's own, calling nobody."""
    return {
        "executable_path": CHROMIUM,
        "args": [
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ],
    }


@pytest.fixture(autouse=True)
def _browser_beside_the_orm(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Playwright runs an event loop in the main thread, where Django then refuses to query.
    if request.node.get_closest_marker("browser"):
        monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")


def pytest_configure(config: pytest.Config) -> None:
    """Starts the server for all workers of pytest-xdist, which share it."""
    shared = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if shared and not settings.DATABASE_URL:
        server = postgres.start(settings.TEST_PG_DIR, for_tests=True)
        config.add_cleanup(server.stop)
        postgres.create_database(settings.TEST_PG_DIR, "paperclip")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[None]:
    """The database server of this session; with DATABASE_URL the one that is given."""
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
