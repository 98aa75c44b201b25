"""A primary with a streaming replica, both real, for the tests that ask who answers."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from paperclip import cluster, postgres
from tests.house.instance import database_address, environment, free_port, manage, wait_for

DATABASE = "paperclip"
SETTINGS = {"wal_level": "replica", "max_wal_senders": "4", "shared_buffers": "32MB"}


@dataclass
class Pair:
    """Two servers: what is written to the primary comes to the standby by itself."""

    primary: Path
    standby: Path

    def on_standby(self, statement: str) -> object:
        with psycopg.connect(postgres.dsn(self.standby, DATABASE), autocommit=True) as connection:
            row = connection.execute(statement).fetchone()
        return row[0] if row else None

    def pause(self) -> None:
        """What comes is kept and not replayed."""
        self.on_standby("SELECT pg_wal_replay_pause()")
        wait_for(lambda: self.on_standby("SELECT pg_get_wal_replay_pause_state()") == "paused")

    def resume(self) -> None:
        self.on_standby("SELECT pg_wal_replay_resume()")

    def catch_up(self) -> None:
        """Wait until the standby has replayed all that the primary has written."""
        with psycopg.connect(postgres.dsn(self.primary, DATABASE), autocommit=True) as connection:
            row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        assert row is not None
        reached = f"SELECT pg_last_wal_replay_lsn() >= '{row[0]}'::pg_lsn"
        assert wait_for(lambda: self.on_standby(reached) is True, seconds=60)


@contextmanager
def pair() -> Iterator[Pair]:
    """Made with the programs of the embedded server, migrated, gone at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="paperclip-test-") as name,
        pytest.MonkeyPatch.context() as patch,
    ):
        folder = Path(name)
        folder.chmod(0o711)
        patch.setattr(postgres, "_SETTINGS", postgres._SETTINGS | SETTINGS)
        both = Pair(folder / "one" / "pg", folder / "two" / "pg")
        primary = postgres.start(both.primary, for_tests=True)
        try:
            postgres.create_database(both.primary, DATABASE)
            _fill(both)
            _copy(both)
            standby = postgres.start(both.standby, for_tests=True)
            try:
                yield both
            finally:
                standby.stop()
        finally:
            primary.stop()


def _programs() -> Path:
    return cluster.reachable_bin(cluster.find_bin(), cluster.server_account())


def _fill(both: Pair) -> None:
    """The schema of the tests' own database, which is quicker than migrating."""
    dump = subprocess.run(
        [_programs() / "pg_dump", "--no-owner", "-d", database_address()],
        capture_output=True,
        check=True,
        timeout=120,
    )
    url = postgres.dsn(both.primary, DATABASE)
    if b"CREATE TABLE public.companies_user" not in dump.stdout:  # no test here wanted one
        env = environment(both.primary.parent / "data", free_port(), DATABASE_URL=url)
        done = manage("migrate", "-v", "0", env=env)
        assert done.returncode == 0, done.stderr
        return
    subprocess.run(
        [_programs() / "psql", "-q", "-v", "ON_ERROR_STOP=1", "-d", url],
        input=dump.stdout,
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=120,
    )


def _copy(both: Pair) -> None:
    """A base backup that follows the primary when it is started."""
    account = cluster.server_account()
    both.standby.parent.mkdir(mode=0o711)
    if account is not None:
        os.chown(both.standby.parent, account.pw_uid, account.pw_gid)
    address = f"host={postgres.socket_dir(both.primary)} user={cluster.USER}"
    done = subprocess.run(
        [
            *(_programs() / "pg_basebackup", "-d", address, "-D", both.standby),
            *("-R", "-X", "stream", "-c", "fast", "--no-sync"),
        ],
        capture_output=True,
        text=True,
        cwd="/",
        env=cluster.ENVIRONMENT,
        timeout=120,
        **cluster.account_options(account),  # type: ignore[call-overload]
    )
    assert done.returncode == 0, done.stderr
