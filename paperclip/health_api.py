"""Is this instance well? For load balancers, clients and people; needs no credential."""

from __future__ import annotations

from datetime import timedelta

from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router

from agents.models import Worker
from companies import wire

router = Router(auth=None)
VERSION = "0.1.0"


@router.get("/health", summary="Is the web process up?")
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


@router.get("/health/ready", summary="Can it do its work: database and shifts?")
def ready(request: HttpRequest) -> HttpResponse:
    """200 when the database answers; `shifts` counts the workers that are alive."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        now = timezone.now()
        shifts = Worker.objects.filter(lease_expires_at__gt=now - timedelta(seconds=5)).count()
    except DatabaseError:
        response = wire.answer({"status": "unavailable", "database": "away", "shifts": 0}, 503)
        response["Retry-After"] = "2"
        return response
    return wire.answer(
        {"status": "ok" if shifts else "degraded", "database": "ok", "shifts": shifts}
    )
