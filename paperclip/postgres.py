"""The embedded PostgreSQL: started, found running, stopped.

For a laptop, a small server and the tests; an instance with DATABASE_URL never comes here. The
server listens on a unix socket in a folder that only its own user (and root) can enter, so it
asks for no password. It ends with the process that started it. Its files: `paperclip.cluster`.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TextIO

import psutil
import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from paperclip import children, cluster
from paperclip.cluster import USER, PostgresError, make_data_dir, socket_dir

__all__ = [
    "USER",
    "PostgresError",
    "Server",
    "answers",
    "available",
    "create_database",
    "dsn",
    "make_data_dir",
    "socket_dir",
    "start",
]

_PORT = 5432  # only a part of the socket's name
_LOG_LIMIT_BYTES = 5_000_000
_START_SECONDS = 120  # recovery after a crash reads the whole write-ahead log
_STOP_SECONDS = 8
_LOCK_SECONDS = 10

_SETTINGS = {
    "max_connections": "200",
    "shared_buffers": "256MB",
    "jit": "off",
    "random_page_cost": "1.1",
    # No replicas hang on this server: the least that is written ahead is enough.
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    # Queued rows come and go quickly; dead index entries would slow every claim.
    "autovacuum_naptime": "15s",
    # A forgotten transaction keeps its locks and every dead row, whoever it is.
    "idle_in_transaction_session_timeout": "10s",
    "timezone": "UTC",
    "log_checkpoints": "off",
    "log_min_error_statement": "panic",
}
# A test database may be lost with the machine.
_TEST_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    # A test's transaction stays open for as long as the test lasts.
    "idle_in_transaction_session_timeout": "0",
}


@dataclass(frozen=True)
class Server:
    """A running embedded PostgreSQL, ours until `stop`."""

    pg_dir: Path
    process: subprocess.Popen[bytes]
    # Held while the server is ours: nobody else may start one on these files, or end this one.
    lock: TextIO

    def stop(self) -> None:
        """Ends the server: connections are cut, everything committed is safe."""
        for signum in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
            if self.process.poll() is None:
                self.process.send_signal(signum)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_STOP_SECONDS)
                break
        with contextlib.suppress(OSError):
            socket_dir(self.pg_dir).rmdir()
        self.lock.close()


def dsn(pg_dir: Path, dbname: str = "postgres") -> str:
    """Returns the address of the embedded server, for psycopg."""
    return make_conninfo(host=str(socket_dir(pg_dir)), user=USER, dbname=dbname, connect_timeout=5)


def answers(pg_dir: Path) -> bool:
    """Tells whether the server of `pg_dir` takes connections now."""
    try:
        psycopg.connect(dsn(pg_dir)).close()
    except psycopg.OperationalError:
        return False
    return True


def start(pg_dir: Path, *, for_tests: bool = False) -> Server:
    """Starts the server of `pg_dir`, making it when it is new; returns when it answers.

    The server ends with the calling process, however that ends; call it from the main thread.
    `for_tests` trades safety for speed. Raises PostgresError.
    """
    make_data_dir(pg_dir.parent)
    lock = _lock(pg_dir)
    try:
        process = _launch(pg_dir, _SETTINGS | (_TEST_SETTINGS if for_tests else {}))
        server = Server(pg_dir=pg_dir, process=process, lock=lock)
        try:
            _wait_until_ready(server)
        except BaseException:
            server.stop()
            raise
    except BaseException:
        lock.close()
        raise
    return server


@contextlib.contextmanager
def available(pg_dir: Path, dbname: str = "paperclip") -> Iterator[None]:
    """Keeps the embedded server running for a command: the one that runs, or one of its own.

    Raises PostgresError.
    """
    server = None
    deadline = time.monotonic() + _LOCK_SECONDS
    while not answers(pg_dir):
        try:
            server = start(pg_dir)
            create_database(pg_dir, dbname)
            break
        except _InUse:
            # Somebody is about to start it, or to stop it.
            if time.monotonic() > deadline:
                raise
    try:
        yield
    finally:
        if server:
            server.stop()


def create_database(pg_dir: Path, name: str) -> None:
    """Makes the database `name` when it is not there yet."""
    with psycopg.connect(dsn(pg_dir), autocommit=True) as connection:
        found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
        if found.fetchone() is None:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))


# --- Starting -------------------------------------------------------------------------------------


class _InUse(PostgresError):
    """Another process has the server of these files."""


def _lock(pg_dir: Path) -> TextIO:
    path = pg_dir.with_name(f"{pg_dir.name}.lock")
    try:
        file = path.open("a")
    except OSError as error:
        raise PostgresError(f"{path} cannot be written to: {error.strerror}.") from None
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            # An owner that answers will keep it; one that does not is coming or going.
            if answers(pg_dir) or time.monotonic() > deadline:
                file.close()
                raise _InUse(f"Another process uses the database in {pg_dir}.") from None
            time.sleep(0.1)


def _launch(pg_dir: Path, settings: dict[str, str]) -> subprocess.Popen[bytes]:
    account = cluster.server_account()
    bin_dir = cluster.reachable_bin(cluster.find_bin(), account)
    version = cluster.version_of(bin_dir)
    place = cluster.cluster_dir(pg_dir, account)
    if cluster.check(place, version):
        _end_leftovers(place)
    else:
        cluster.make(place, bin_dir, version, account)
    sockets = socket_dir(pg_dir)
    cluster.make_socket_dir(sockets, account)
    with _open_log(_log_path(pg_dir)) as log:
        return subprocess.Popen(
            [
                *(bin_dir / "postgres", "-D", place, "-k", sockets, "-h", "", "-p", str(_PORT)),
                *(part for name, value in settings.items() for part in ("-c", f"{name}={value}")),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=cluster.ENVIRONMENT,
            # Ctrl-C in the terminal is for the supervisor, which ends the server last.
            start_new_session=True,
            # Runs after the change of user, which would clear it. SIGINT: a fast shutdown.
            preexec_fn=children.tied(signal.SIGINT),
            **cluster.account_options(account),  # type: ignore[call-overload]
        )


def _wait_until_ready(server: Server) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not answers(server.pg_dir):
        if server.process.poll() is not None:
            complaint = _last_complaint(_log_path(server.pg_dir))
            raise PostgresError(f"The database did not start: {complaint}")
        if time.monotonic() > deadline:
            raise PostgresError(f"The database did not answer within {_START_SECONDS} s.")
        time.sleep(0.03)


def _end_leftovers(cluster: Path) -> None:
    """Ends a server that outlived its starter, and forgets one whose number is somebody else's."""
    deadline = time.monotonic() + _STOP_SECONDS
    pid_file = cluster / "postmaster.pid"
    left = _processes_in(cluster)
    for signum in (None, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        if not left:
            break
        if signum is not None:
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signum)
        # The first round waits: a server whose starter was killed is on its way out already.
        _, left = psutil.wait_procs(left, timeout=max(1.0, (deadline - time.monotonic()) / 2))
    # After a restart of the machine (or container) the number kept here may be any process's, and
    # PostgreSQL would not start beside it.
    if not _processes_in(cluster):
        pid_file.unlink(missing_ok=True)


def _processes_in(cluster: Path) -> list[psutil.Process]:
    """Returns the PostgreSQL processes that work in `cluster`, the postmaster first."""
    place = str(cluster.resolve())
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.name().startswith("postgres") and process.cwd() == place:
                found.append(process)
    return sorted(found, key=lambda process: process.pid)


def _log_path(pg_dir: Path) -> Path:
    return pg_dir.with_name(f"{pg_dir.name}.log")


def _open_log(path: Path) -> BinaryIO:
    fresh = not path.exists() or path.stat().st_size > _LOG_LIMIT_BYTES
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if fresh else os.O_APPEND)
    return os.fdopen(os.open(path, flags, 0o600), "wb")


def _last_complaint(log_path: Path) -> str:
    lines = log_path.read_text(errors="replace").splitlines()[-20:]
    bad = [line for line in lines if "FATAL" in line or "PANIC" in line] or lines
    return f"{bad[-1] if bad else 'no reason given'} (more in {log_path})."
