"""Settings: the company, its members, its secrets (write-only), one's own API keys (shown once)."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST

from companies import operator_keys, second_factor, secrets, sign_in, tenancy, undo
from companies.errors import NotFound, Refusal
from companies.models import Company, Membership, OperatorKey, Secret
from companies.views.door import PageRequest, page


def _show(request: PageRequest, **more: Any) -> HttpResponse:
    context: dict[str, Any] = {
        "section": "settings",
        "members": tenancy.members(request.company),
        "roles": Membership.Role.values,
        "secrets": Secret.objects.for_company(request.company.id).defer("sealed"),
        "second_factor": second_factor.of(request.user),
        "keys": OperatorKey.objects.filter(user=request.user, revoked_at=None),
        **more,
    }
    status = 422 if "problem" in more else 200
    return render(request, "companies/settings.html", context, status=status)


def _refused(request: PageRequest, part: str, refusal: Refusal) -> HttpResponse:
    """The page again with the message at its form, and what was typed still there."""
    return _show(request, problem=part, said=refusal.message, typed=request.POST)


def _done(request: PageRequest, part: str, words: str) -> HttpResponse:
    messages.success(request, words)
    return redirect(f"{request.base}/settings/#{part}")


@page()
def settings(request: PageRequest) -> HttpResponse:
    return _show(request)


@require_POST
@page("manage")
def company(request: PageRequest) -> HttpResponse:
    cap = request.POST.get("max_concurrent_agents", "")
    try:
        tenancy.update(
            company=request.company,
            changes={
                "name": request.POST.get("name", ""),
                "description": request.POST.get("description", ""),
                "max_concurrent_agents": int(cap) if cap.isascii() and cap.isdigit() else cap,
            },
            actor=request.principal.actor,
            now=request.now,
        )
    except Refusal as refusal:
        return _refused(request, "company", refusal)
    return _done(request, "company", "Saved.")


@require_POST
@page("manage")
def state(request: PageRequest) -> HttpResponse:
    """Pause or resume the whole company; archive it, or take it out of the archive."""
    wish, actor, now = request.POST.get("wish", ""), request.principal.actor, request.now
    if wish == "pause":
        reason = request.POST.get("reason", "")
        tenancy.pause(company=request.company, actor=actor, reason=reason, now=now)
        return _done(request, "company", "The company is paused: no agent starts any more.")
    if wish == "archive":
        tenancy.archive(company=request.company, actor=actor, now=now)
        words = f"{request.company.name} is archived."
        undo.offer(request, words, f"{request.base}/settings/state", {"wish": "restore"})
        return redirect(f"{request.base}/settings/#archive")
    if wish == "restore":
        tenancy.restore(company=request.company, actor=actor, now=now)
        return _done(request, "company", "The company is back, and paused: resume it when ready.")
    tenancy.resume(company=request.company, actor=actor, now=now)
    return _done(request, "company", "The company works again.")


@require_POST
@page("manage")
def invite(request: PageRequest) -> HttpResponse:
    """Add a person; one whose account is new gets a one-time link, shown here once."""
    try:
        member = tenancy.invite(
            company=request.company,
            email=request.POST.get("email", ""),
            role=request.POST.get("role", ""),
            actor=request.principal.actor,
            now=request.now,
        )
    except Refusal as refusal:
        return _refused(request, "members", refusal)
    token = sign_in.link_for_inviter(membership=member, now=request.now)
    if token is None:
        return _done(request, "members", f"{member.user}, who has an account, is a member now.")
    link = request.build_absolute_uri(f"/sign-in/{token}")
    return _show(request, link=link, invited=member.user.email)


@require_POST
@page("manage")
def member(request: PageRequest, user_id: uuid.UUID) -> HttpResponse:
    """Change a member's role, or take them out."""
    found = (
        Membership.objects.for_company(request.company.id)
        .select_related("company", "user")
        .filter(user_id=user_id)
        .first()
    )
    if found is None:
        raise NotFound()
    actor = request.principal.actor
    if request.POST.get("remove"):
        tenancy.remove_member(membership=found, actor=actor, now=request.now)
        return _done(request, "members", f"{found.user} is no longer a member.")
    tenancy.set_role(
        membership=found, role=request.POST.get("role", ""), actor=actor, now=request.now
    )
    return _done(request, "members", "The role is changed.")


@require_POST
@page("manage")
def secret(request: PageRequest) -> HttpResponse:
    """Store a secret or a new value of it; no page ever shows one."""
    try:
        stored = secrets.put(
            company=request.company,
            name=request.POST.get("name", "").strip(),
            value=request.POST.get("value", ""),
            actor=request.principal.actor,
            now=request.now,
        )
    except Refusal as refusal:
        return _refused(request, "secrets", refusal)
    return _done(request, "secrets", f"{stored.name} is stored.")


@require_POST
@page("manage")
def forget_secret(request: PageRequest) -> HttpResponse:
    name = request.POST.get("name", "")
    secrets.delete(
        company=request.company, name=name, actor=request.principal.actor, now=request.now
    )
    return _done(request, "secrets", f"{name} is forgotten.")


@require_POST
@page()
def key(request: PageRequest) -> HttpResponse:
    """A personal API key for the signed-in person, or its end."""
    revoked = request.POST.get("revoke", "")
    if revoked:
        try:
            key_id = uuid.UUID(revoked)
        except ValueError:
            raise NotFound() from None
        operator_keys.revoke(user=request.user, key_id=key_id, now=request.now)
        return _done(request, "keys", "The key is worthless now.")
    try:
        _, token = operator_keys.create(
            user=request.user, name=request.POST.get("name", ""), now=request.now
        )
    except Refusal as refusal:
        return _refused(request, "keys", refusal)
    return _show(request, token=token)


def new_company(request: Any) -> HttpResponse:
    """Found a company; whoever does owns it."""
    if not request.user.is_authenticated:
        return redirect("/sign-in?next=/companies/new")
    shelf = Company.objects.filter(
        memberships__user_id=request.user.pk, status=Company.Status.ARCHIVED
    )
    context: dict[str, Any] = {"typed": request.POST, "archived": shelf.order_by("name", "id")}
    if request.method == "POST":
        try:
            made: Company = tenancy.create(
                name=request.POST.get("name", ""),
                prefix=request.POST.get("prefix", "").strip(),
                description=request.POST.get("description", ""),
                owner=request.user,
                now=timezone.now(),
            )
        except Refusal as refusal:
            context |= {"problem": refusal.field, "said": refusal.message}
        else:
            return redirect(f"/c/{made.issue_prefix}/")
    status = 422 if "said" in context else 200
    return render(request, "companies/new.html", context, status=status)
