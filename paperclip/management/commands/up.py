"""`manage.py up`: the whole instance under one parent."""

import errno
import fcntl
import http.client
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections
from django.utils import timezone

from paperclip import boot, children, postgres, running, supervisor, watchdog
from paperclip.supervisor import Child, Supervisor

_MARK = "PAPERCLIP_UP"
_PORT_PATIENCE_SECONDS = 1.5
_WEB_STATEMENT_SECONDS = 15


class Command(BaseCommand):
    help = "Starts everything: database, web server, background workers. Ctrl-C stops it."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--tied", action="store_true", help="Stop when the program that started this ends."
        )

    def handle(self, *args: Any, tied: bool, **options: Any) -> None:
        signal.signal(signal.SIGTERM, _interrupt)
        if tied:
            children.die_with(os.getppid(), signal.SIGTERM)
        try:
            self._run()
        except (postgres.PostgresError, boot.BootError) as error:
            raise CommandError(str(error)) from None
        except KeyboardInterrupt:
            raise CommandError("Stopped before the start was complete.") from None

    def _run(self) -> None:
        began = time.monotonic()
        with ExitStack() as stack:
            postgres.make_data_dir(settings.DATA_DIR)
            stack.enter_context(_only_one(settings.DATA_DIR))
            supervisor.kill_strays(_MARK, str(settings.DATA_DIR))
            _check_port(settings.HOST, settings.PORT)
            stack.enter_context(running.announced(settings.DATA_DIR, settings.BASE_URL))
            database = stack.enter_context(_database())
            now = timezone.now()
            boot.prepare_database(now)
            operator = boot.first_operator(now)
            boot.prepare_demo()
            boot.prepare_static()
            # The supervisor itself needs no database from here on, and a connection that it held
            # would be forked into nobody's hands.
            connections.close_all()

            with Supervisor(cwd=settings.BASE_DIR, say=self._say) as parent:
                database.watched_by(parent)
                for child in _children():
                    parent.add(child)
                parent.when(_web_answers, lambda: self._welcome(operator, began))
                parent.run()
                self.stdout.write("\nStopping.")
        self.stdout.write("Stopped.")

    def _say(self, text: str) -> None:
        supervisor.print_line("up", text)

    def _welcome(self, operator: boot.Operator, began: float) -> None:
        lines = [
            "",
            f"  Paperclip is ready at {settings.BASE_URL}  ({time.monotonic() - began:.1f} s)",
            "",
        ]
        if operator.link:
            lines.append(f"  Sign in once with this link: {operator.link}")
        else:
            lines.append(f"  Sign in as {operator.email} with your password.")
        lines.append(f"  Data is kept in {settings.DATA_DIR}")
        if settings.PG_DIR.is_symlink():
            # Under a private home the server's own user cannot reach the data folder.
            lines.append(f"  and the database in {settings.PG_DIR.resolve()}")
        lines += ["  Ctrl-C stops everything.", ""]
        self.stdout.write("\n".join(lines))
        self.stdout.flush()


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _children() -> Iterator[Child]:
    instance = f"{socket.gethostname()}-{secrets.token_hex(4)}"
    manage = [sys.executable, str(settings.BASE_DIR / "manage.py")]
    cluster = ["qcluster", "--skip-checks"]
    shared = {
        _MARK: str(settings.DATA_DIR),
        # The children start elsewhere, where a relative path would mean something else.
        "PAPERCLIP_DATA_DIR": str(settings.DATA_DIR),
        "PAPERCLIP_INSTANCE": instance,
        "DJANGO_SETTINGS_MODULE": "paperclip.settings",
        "PYTHONUNBUFFERED": "1",
    }
    yield Child(
        name="web",
        argv=[
            *(sys.executable, "-m", "granian", "paperclip.asgi:application"),
            *("--interface", "asgi", "--loop", "uvloop", "--no-ws", "--respawn-failed-workers"),
            *("--host", settings.HOST, "--port", str(settings.PORT)),
            *("--workers", str(settings.WEB_WORKERS), "--workers-kill-timeout", "5s"),
            *("--log-level", "warning", "--backlog", "1024"),
        ],
        # Open pages hold streams, for which the server would wait; see `paperclip.asgi`.
        notice=signal.SIGUSR1,
        env=shared
        | {
            "PAPERCLIP_PROCESS": "paperclip-web",
            # A page that has not come after this time is not waited for any more.
            "PAPERCLIP_STATEMENT_TIMEOUT_SECONDS": str(_WEB_STATEMENT_SECONDS),
        },
    )
    yield Child(
        name="tasks",
        argv=[*manage, *cluster],
        env=shared | {"PAPERCLIP_PROCESS": "paperclip-tasks", "Q_CLUSTER_NAME": "default"},
        ailing=lambda alive: watchdog.default_cluster_ails(alive, instance),
    )
    if settings.SHIFTS > 0:
        yield Child(
            name="shifts",
            # The queue warns that a shift has no time-out; it is meant to have none.
            argv=[sys.executable, "-W", "ignore:Retry and timeout", *manage[1:], *cluster],
            env=shared | {"PAPERCLIP_PROCESS": "paperclip-shifts", "Q_CLUSTER_NAME": "dispatch"},
            before_kill=lambda: watchdog.drain(instance),
            ailing=lambda alive: watchdog.dispatch_cluster_ails(alive, instance),
        )


class _Database:
    """The database of this run: the embedded server, or one that is somebody else's."""

    def __init__(self) -> None:
        self._server: postgres.Server | None = None

    def start(self) -> None:
        if not settings.DATABASE_URL:
            # What is left of a server that has died is in the way of its successor.
            self.stop()
            self._server = postgres.start(settings.PG_DIR)
            postgres.create_database(settings.PG_DIR, settings.DATABASES["default"]["NAME"])

    def stop(self) -> None:
        if self._server is not None:
            connections.close_all()
            self._server.stop()

    def watched_by(self, parent: Supervisor) -> None:
        if self._server is not None:
            parent.watch("database", self._poll, self.start)

    def _poll(self) -> int | None:
        assert self._server is not None
        return self._server.process.poll()


@contextmanager
def _database() -> Iterator[_Database]:
    database = _Database()
    try:
        database.start()
        yield database
    finally:
        database.stop()


@contextmanager
def _only_one(data_dir: Path) -> Iterator[None]:
    """Holds the data folder for this process; raises CommandError when another one has it."""
    path = data_dir / "up.lock"
    try:
        file = path.open("a+")
    except OSError as error:
        raise CommandError(
            f"The data folder {data_dir} cannot be written to: {error.strerror}."
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip()
            raise CommandError(
                f"Paperclip already runs on {data_dir} (process {holder or 'unknown'}): stop it"
                " first, or set another PAPERCLIP_DATA_DIR and PAPERCLIP_PORT."
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _check_port(host: str, port: int) -> None:
    """Raises CommandError when the address is taken.

    The web server shares a port without complaint, and a forgotten instance would then take half
    of the requests.
    """
    deadline = time.monotonic() + _PORT_PATIENCE_SECONDS
    while True:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
            return
        except (OSError, OverflowError) as error:
            # The web server of a life that has just ended badly may need a moment to go.
            taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            if not taken or time.monotonic() > deadline:
                why = "is taken by another program" if taken else f"cannot be used ({error})"
                raise CommandError(
                    f"Port {port} on {host} {why}: stop that one, or set PAPERCLIP_PORT."
                ) from None
            time.sleep(0.1)


def _web_answers() -> bool:
    host = settings.HOST if settings.HOST not in ("0.0.0.0", "::", "") else "localhost"  # noqa: S104
    # The port is open before a worker stands behind it; only an answer counts, whatever it says.
    web = http.client.HTTPConnection(host, settings.PORT, timeout=2)
    try:
        web.request("GET", "/api/health")
        web.getresponse()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        web.close()
    return True
