"""Is this instance well? For load balancers, clients and people; needs no credential.

Liveness asks nobody. Readiness says what is missing, with 503 while something is.
"""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse
from ninja import Router

from companies import wire
from paperclip import answers

router = Router(auth=None, by_alias=True)
VERSION = "0.1.0"

_began = time.monotonic()
_migrated = False  # once true it stays so: a newer version's migrations run with this code, too

_WORK = """
SELECT (SELECT count(*) FROM agents_worker WHERE lease_expires_at > clock_timestamp()),
       (SELECT round(extract(epoch FROM clock_timestamp() - max(beat_at)))::int
        FROM agents_beacon)
"""
_SENTENCES = {
    "database": "The database does not answer.",
    "migrations": "The database is not migrated to this version.",
    "shifts": "No shift is alive: nothing carries runs.",
    "canary": "No background task has been finished for minutes.",
}


@router.get("/health", response=answers.Health, summary="Is the web process up?")
def health(request: HttpRequest) -> HttpResponse:
    return wire.answer(
        {
            "status": "ok",
            "version": VERSION,
            "serverVersion": VERSION,
            "deploymentMode": "authenticated",
            "authReady": True,
            "bootstrapStatus": "ready",
        }
    )


@router.get(
    "/health/ready",
    response=answers.Readiness,
    summary="Can it do its work: database, migrations, shifts, tasks?",
)
def ready(request: HttpRequest) -> HttpResponse:
    """200 when everything that work needs is there, else 503 with the first thing that is not.

    `checks` says of each whether it is there; `shifts` counts the workers that are alive in the
    whole system, `ageSeconds` of the canary is how long ago a background task was carried out.
    """
    checks = _checks()
    missing = [name for name, check in checks.items() if not check["ok"]]
    if not missing:
        facts = {"status": "ok", "database": "ok", "shifts": checks["shifts"]["live"]}
        return wire.answer({**facts, "checks": checks})
    response = wire.refusal(
        503, "not_ready", _SENTENCES[missing[0]], {"missing": missing, "checks": checks}
    )
    response["Retry-After"] = "2"
    # Probes come every few seconds; the log need not hear of each.
    response._has_been_logged = True  # type: ignore[attr-defined]
    return response


def _checks() -> dict[str, dict[str, Any]]:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        waiting = _waiting_migrations()
        if waiting:
            return {
                "database": {"ok": True},
                "migrations": {"ok": False, "waiting": waiting},
            }
        with connection.cursor() as cursor:
            cursor.execute(_WORK)
            live, age = cursor.fetchone()
    except DatabaseError:
        return {"database": {"ok": False}}
    # A system that has just been started has had no minute for its first canary.
    young = time.monotonic() - _began < settings.WATCHDOG_SECONDS
    return {
        "database": {"ok": True},
        "migrations": {"ok": True, "waiting": 0},
        "shifts": {"ok": live > 0, "live": live},
        "canary": {
            "ok": young if age is None else age <= settings.WATCHDOG_SECONDS,
            "ageSeconds": age,
        },
    }


def _waiting_migrations() -> int:
    """How many migrations of this version the database lacks; asked until there are none."""
    global _migrated
    if _migrated:
        return 0
    executor = MigrationExecutor(connection)
    waiting = len(executor.migration_plan(executor.loader.graph.leaf_nodes()))
    _migrated = not waiting
    return waiting
