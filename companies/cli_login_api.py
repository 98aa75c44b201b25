"""The command-line client's login over the API."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router
from pydantic import Field

from companies import answers, cli_login, operator_keys, throttle, wire
from companies.cli_login_models import CliLogin
from companies.errors import Invalid
from companies.models import Membership, OperatorKey, User

router = Router(by_alias=True)
ASKS_A_MINUTE = 10
LOOKS_A_MINUTE = 240


class Ask(wire.Body):
    command: Annotated[wire.Text, Field(max_length=2_000)] | None = None
    client_name: Annotated[wire.Text, Field(max_length=500)] | None = None


class Secret(wire.Body):
    token: Annotated[wire.Text, Field(min_length=1, max_length=200)]


class Nothing(wire.Body):
    """A body that says nothing; clients send `{}`."""


@router.post(
    "/cli-auth/challenges",
    response={201: answers.CliChallenge},
    auth=None,
    summary="A client asks to be let in",
)
def ask(request: HttpRequest, body: Ask) -> HttpResponse:
    """The key in the answer is worth nothing until a signed-in person has approved."""
    _limit(request, "ask", ASKS_A_MINUTE)
    asked = cli_login.ask(
        command=body.command or "",
        client_name=body.client_name or "",
        address=request.META.get("REMOTE_ADDR", ""),
        now=timezone.now(),
    )
    path = f"/cli-login/{asked.login.id}?token={asked.secret}"
    return wire.answer(
        {
            "id": asked.login.id,
            "token": asked.secret,
            "boardApiToken": asked.token,
            "approvalPath": path,
            "approvalUrl": f"{settings.BASE_URL}{path}",
            "pollPath": f"/cli-auth/challenges/{asked.login.id}",
            "expiresAt": asked.login.expires_at,
            "suggestedPollIntervalMs": 1_000,
        },
        201,
    )


@router.get(
    "/cli-auth/challenges/{login_id}",
    response=answers.CliLogin,
    auth=None,
    summary="Has somebody approved?",
)
def look(
    request: HttpRequest,
    login_id: uuid.UUID,
    token: Annotated[wire.Text, Field(max_length=200)] = "",
) -> HttpResponse:
    _limit(request, "look", LOOKS_A_MINUTE)
    return wire.answer(_shape(cli_login.find(login_id=login_id, secret=token)))


@router.post(
    "/cli-auth/challenges/{login_id}/approve",
    response=answers.CliLogin,
    summary="Let a client in, as oneself",
)
def approve(request: HttpRequest, login_id: uuid.UUID, body: Secret) -> HttpResponse:
    user = User.objects.get(id=wire.user_only(wire.principal(request)))
    login = cli_login.find(login_id=login_id, secret=body.token)
    return wire.answer(_shape(cli_login.approve(login=login, user=user, now=timezone.now())))


@router.post(
    "/cli-auth/challenges/{login_id}/cancel",
    response=answers.CliLogin,
    auth=None,
    summary="Take a request back",
)
def cancel(request: HttpRequest, login_id: uuid.UUID, body: Secret) -> HttpResponse:
    _limit(request, "look", LOOKS_A_MINUTE)
    login = cli_login.find(login_id=login_id, secret=body.token)
    return wire.answer(_shape(cli_login.cancel(login=login, now=timezone.now())))


@router.get("/cli-auth/me", response=answers.CliIdentity, summary="Who the key stands for")
def me(request: HttpRequest) -> HttpResponse:
    caller = wire.principal(request)
    user = User.objects.get(id=wire.user_only(caller))
    memberships = Membership.objects.filter(user=user).order_by("created_at", "id")
    roles = [(row.company_id, row.role) for row in memberships]
    return wire.answer(
        {
            "user": {"id": user.id, "name": user.name, "email": user.email},
            "userId": user.id,
            "isInstanceAdmin": user.is_superuser,
            "companyIds": [company_id for company_id, _ in roles],
            "memberships": [
                {"companyId": company_id, "membershipRole": role, "status": "active"}
                for company_id, role in roles
            ],
            "source": "board_key" if "Authorization" in request.headers else "session",
            "keyId": _key_id(request),
        }
    )


@router.post(
    "/cli-auth/revoke-current",
    response=answers.Revoked,
    summary="Make the key of this call worthless",
)
def revoke_current(request: HttpRequest, body: Nothing | None = None) -> HttpResponse:
    user = User.objects.get(id=wire.user_only(wire.principal(request)))
    key_id = _key_id(request)
    if key_id is None:
        raise Invalid("no_key", "This call carries no key.")
    operator_keys.revoke(user=user, key_id=key_id, now=timezone.now())
    return wire.answer({"revoked": True, "keyId": key_id})


def _key_id(request: HttpRequest) -> uuid.UUID | None:
    token = request.headers.get("Authorization", "").partition(" ")[2].strip()
    if not token:
        return None
    lookup = token.split("_")[1] if token.count("_") >= 2 else ""
    return OperatorKey.objects.filter(lookup=lookup).values_list("id", flat=True).first()


def _limit(request: HttpRequest, what: str, limit: int) -> None:
    address = request.META.get("REMOTE_ADDR", "")
    throttle.hit(f"cli-{what}:{address}", limit=limit, window_seconds=60, now=timezone.now())


def _shape(login: CliLogin) -> dict[str, Any]:
    user = login.approved_by
    return {
        "id": login.id,
        "status": cli_login.status(login, timezone.now()),
        "command": login.command,
        "clientName": login.client_name or None,
        "requestedFrom": login.address,
        "approvedByUser": {"id": user.id, "name": user.name, "email": user.email} if user else None,
        "expiresAt": login.expires_at,
        "createdAt": login.created_at,
    }
