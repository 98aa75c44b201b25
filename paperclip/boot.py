"""What an instance needs before it can serve: a current database, an operator, something to see.

Every step may run again at each start, and at the same time on another instance. `manage.py up`
is the only caller.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import psycopg
from django.conf import settings
from django.core.management import call_command
from django.db import OperationalError, connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader

from companies import partitions, sign_in
from companies.models import SignInLink, User
from paperclip import fingerprints
from paperclip.engine import schedule

OLDEST_POSTGRES = 15
# Any number that no other program uses for a lock in this database.
_BOOT_LOCK = 7_250_113_401


class BootError(Exception):
    """The instance cannot start; the text is one sentence for the operator."""


@dataclass(frozen=True)
class Operator:
    """Who may sign in first. `link` is a one-time address, empty when there is a password."""

    email: str
    link: str


def prepare_database(now: datetime) -> None:
    """Brings the database to the state that this version needs. Raises BootError."""
    _check_server()
    with _alone():
        _check_not_newer()
        if _migrations_wait():  # asking is several times quicker than migrating nothing
            call_command("migrate", interactive=False, verbosity=0)
        try:
            fingerprints.check(now=now)
        except fingerprints.OtherKey as error:
            raise BootError(str(error)) from None
        partitions.ensure_all(now=now)
        schedule.ensure()


def _migrations_wait() -> bool:
    executor = MigrationExecutor(connection)
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))


def prepare_static() -> None:
    """Collects the static files where the production profile serves them from."""
    if settings.PRODUCTION:
        call_command("collectstatic", interactive=False, verbosity=0)


def prepare_demo() -> None:
    """Makes the demo company in an empty database, when PAPERCLIP_DEMO is on."""
    if settings.DEMO:
        with _alone():
            call_command("demo", if_empty=True, verbosity=0)


def first_operator(now: datetime) -> Operator:
    """Returns who may sign in, making the first operator in an empty database.

    An operator without a password gets a new one-time link at every start, or nobody could come
    back after the session has ended.
    """
    with transaction.atomic():
        user = User.objects.filter(is_superuser=True, is_active=True).order_by("created_at").first()
        if user is None:
            email = settings.ADMIN_EMAIL or "operator@localhost"
            user = User.objects.filter(email__iexact=email).first()
            if user is None:
                user = User.objects.create_superuser(
                    email, settings.ADMIN_PASSWORD or None, name="Operator"
                )
        if user.has_usable_password():
            return Operator(email=user.email, link="")
        SignInLink.objects.filter(user=user, used_at__isnull=True).delete()
        token = sign_in.make_link(user=user, now=now)
    return Operator(email=user.email, link=f"{settings.BASE_URL}/sign-in/{token}")


def _check_server() -> None:
    try:
        connection.ensure_connection()
    except OperationalError as error:
        raise BootError(f"The database cannot be reached: {str(error).splitlines()[0]}") from None
    info = connection.connection.info
    version = info.server_version
    if version // 10_000 < OLDEST_POSTGRES:
        raise BootError(
            f"The database server is PostgreSQL {version // 10_000};"
            f" Paperclip needs {OLDEST_POSTGRES} or newer."
        )
    encoding = info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise BootError(
            f"The database keeps text as {encoding}, which cannot hold all letters:"
            " make one with ENCODING 'UTF8'."
        )


def _check_not_newer() -> None:
    """Raises BootError when a newer version of Paperclip has changed the database already."""
    loader = MigrationLoader(connection, ignore_no_migrations=True)
    own = {"companies", "agents", "issues", "billing", "paperclip"}
    unknown = sorted(
        f"{app}.{name}"
        for app, name in (loader.applied_migrations or {})
        if app in own and (app, name) not in (loader.disk_migrations or {})
    )
    # A squashed migration replaces others that are recorded by their own names.
    replaced = {
        f"{app}.{name}"
        for migration in (loader.disk_migrations or {}).values()
        for app, name in migration.replaces
    }
    unknown = [name for name in unknown if name not in replaced]
    if unknown:
        raise BootError(
            f"The database was changed by a newer version of Paperclip ({unknown[-1]}):"
            " start that version, or choose another database."
        )


@contextmanager
def _alone() -> Iterator[None]:
    """Makes instances that start at once on one database take turns."""
    # A connection of its own: behind a pooler a session's lock would be anybody's.
    with psycopg.connect(settings.DIRECT_DSN, autocommit=True) as guard:
        guard.execute("SELECT pg_advisory_lock(%s)", [_BOOT_LOCK])
        yield
