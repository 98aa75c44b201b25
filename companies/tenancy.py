"""Companies and who belongs to them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.db.models import Case, QuerySet, When
from django.utils import timezone

from companies import activity, fields, live
from companies.activity import Actor
from companies.errors import Conflict, Invalid, NotFound
from companies.models import Company, Membership, User

Role = Membership.Role

NAME_CHARS = 120
DESCRIPTION_CHARS = 20_000
MAX_CONCURRENT_AGENTS = 1_000
_PREFIX = re.compile(r"[A-Z][A-Z0-9]{1,7}")


@transaction.atomic
def create(
    *,
    name: str,
    owner: User,
    actor: Actor | None = None,
    prefix: str = "",
    description: str = "",
    is_demo: bool = False,
    now: datetime | None = None,
) -> Company:
    """A new company with its owner. Without a prefix one is made from the name and kept free.

    Raises Invalid (field name, prefix, description) and Conflict when the wanted prefix is taken.
    """
    now = now or timezone.now()
    company = Company(
        name=fields.text(name, "name", limit=NAME_CHARS, required=True),
        description=fields.text(description, "description", limit=DESCRIPTION_CHARS),
        issue_prefix=_prefix(prefix, name),
        is_demo=is_demo,
    )
    try:
        with transaction.atomic():
            company.save(force_insert=True)
    except IntegrityError:
        raise Conflict(
            "prefix_taken",
            f"Another company numbers its issues {company.issue_prefix}-1, …",
            field="prefix",
        ) from None
    Membership.objects.create(company=company, user=owner, role=Role.OWNER)
    _record(
        company,
        actor or Actor("user", owner.id, str(owner)),
        "company.created",
        now,
        {"after": {"name": company.name, "prefix": company.issue_prefix}},
    )
    return company


@transaction.atomic
def update(
    *,
    company: Company,
    changes: Mapping[str, Any],
    actor: Actor,
    now: datetime | None = None,
) -> Company:
    """Change name, description or max_concurrent_agents. The prefix is part of every issue's
    identifier and stays. Raises Invalid with the field."""
    now = now or timezone.now()
    company = _locked(company)
    clean: dict[str, Any] = {}
    for field, value in changes.items():
        if field == "name":
            clean[field] = fields.text(value, field, limit=NAME_CHARS, required=True)
        elif field == "description":
            clean[field] = fields.text(value, field, limit=DESCRIPTION_CHARS)
        elif field == "max_concurrent_agents":
            clean[field] = _cap(value)
        else:
            raise Invalid("unknown_field", f"{field} cannot be changed here.", field=field)
    before = {f: getattr(company, f) for f, v in clean.items() if getattr(company, f) != v}
    if not before:
        return company
    for field in before:
        setattr(company, field, clean[field])
    company.save(update_fields=[*before, "updated_at"])
    after = {field: clean[field] for field in before}
    _record(company, actor, "company.updated", now, {"before": before, "after": after})
    live.wake()  # a higher cap may let somebody start
    return company


@transaction.atomic
def pause(
    *, company: Company, actor: Actor, reason: str = "", now: datetime | None = None
) -> Company:
    """No agent of the company starts any more; what runs goes on. Raises Conflict when archived."""
    return _set_status(company, Company.Status.PAUSED, "company.paused", actor, now, reason)


@transaction.atomic
def resume(*, company: Company, actor: Actor, now: datetime | None = None) -> Company:
    """The agents may start again; what is queued starts. Raises Conflict when archived."""
    return _set_status(company, Company.Status.ACTIVE, "company.resumed", actor, now)


@transaction.atomic
def archive(*, company: Company, actor: Actor, now: datetime | None = None) -> Company:
    """Out of use, nothing is lost: no run starts and no wake is accepted until it is restored."""
    return _set_status(company, Company.Status.ARCHIVED, "company.archived", actor, now)


@transaction.atomic
def restore(*, company: Company, actor: Actor, now: datetime | None = None) -> Company:
    """An archived company comes back paused, so that nothing starts unseen."""
    company = _locked(company)
    if company.status != Company.Status.ARCHIVED:
        raise Conflict("not_archived", "This company is not archived.")
    return _write_status(
        company, Company.Status.PAUSED, "company.restored", actor, now, "Restored from the archive."
    )


@transaction.atomic
def invite(
    *,
    company: Company,
    email: str,
    role: str,
    actor: Actor,
    name: str = "",
    now: datetime | None = None,
) -> Membership:
    """Add a person by e-mail; one who is unknown gets an account without a password (they come in
    by a sign-in link). Raises Invalid, and Conflict for a member."""
    now = now or timezone.now()
    email = fields.text(email, "email", limit=254, required=True).lower()
    try:
        validate_email(email)
    except ValidationError:
        raise Invalid("invalid_email", "This is no e-mail address.", field="email") from None
    user = User.objects.filter(email__iexact=email).first() or _account(
        email, fields.text(name, "name", limit=NAME_CHARS)
    )
    return add_member(company=company, user=user, role=role, actor=actor, now=now)


@transaction.atomic
def add_member(
    *, company: Company, user: User, role: str, actor: Actor, now: datetime | None = None
) -> Membership:
    """Make a person a member. Raises Invalid for a role, Conflict for a member."""
    now = now or timezone.now()
    company = _locked(company)
    membership, made = Membership.objects.get_or_create(
        company=company, user=user, defaults={"role": _role(role)}
    )
    if not made:
        raise Conflict("already_a_member", f"{user} is a member already.", field="email")
    _record_member(membership, actor, "member.added", now, {"after": {"role": membership.role}})
    return membership


@transaction.atomic
def set_role(
    *, membership: Membership, role: str, actor: Actor, now: datetime | None = None
) -> Membership:
    """Give a member another role. The last owner stays owner (Conflict)."""
    now = now or timezone.now()
    _locked(membership.company)
    membership = _member(membership)
    before, role = membership.role, _role(role)
    if role == before:
        return membership
    if role != Role.OWNER:
        _keep_an_owner(membership)
    membership.role = role
    membership.save(update_fields=["role"])
    details = {"before": {"role": before}, "after": {"role": role}}
    _record_member(membership, actor, "member.role_changed", now, details)
    return membership


@transaction.atomic
def remove_member(*, membership: Membership, actor: Actor, now: datetime | None = None) -> None:
    """Take a person out of a company. The last owner stays (Conflict)."""
    now = now or timezone.now()
    _locked(membership.company)
    membership = _member(membership)
    _keep_an_owner(membership)
    details = {"before": {"role": membership.role}}
    _record_member(membership, actor, "member.removed", now, details)
    membership.delete()


def members(company: Company) -> QuerySet[Membership]:
    """The members with their accounts, owners first."""
    by_role = Case(*(When(role=role, then=place) for place, role in enumerate(Role.values)))
    return company.memberships.select_related("user").order_by(by_role, "user__email", "id")


def free_prefix(name: str) -> str:
    """A prefix from the capitals or the first letters of a name that nobody uses yet."""
    letters = re.sub(r"[^A-Z0-9]", "", name.upper())
    letters = letters.lstrip("0123456789") or "CO"
    wanted = (letters + "CO")[:3]
    taken = set(
        Company.objects.filter(issue_prefix__startswith=wanted).values_list(
            "issue_prefix", flat=True
        )
    )
    number = 1
    prefix = wanted
    while prefix in taken:
        number += 1
        prefix = f"{wanted}{number}"[:8]
    return prefix


def _account(email: str, name: str) -> User:
    """A new account without a password, or the one that somebody else has just made."""
    try:
        with transaction.atomic():
            return User.objects.create_user(email, None, name=name)
    except IntegrityError:
        return User.objects.get(email__iexact=email)


def _set_status(
    company: Company,
    status: str,
    action: str,
    actor: Actor,
    now: datetime | None,
    reason: str = "",
) -> Company:
    company = _locked(company)
    if company.status == status:
        return company
    if company.status == Company.Status.ARCHIVED:
        raise Conflict("company_archived", "This company is archived; restore it first.")
    return _write_status(company, status, action, actor, now, reason)


def _write_status(
    company: Company, status: str, action: str, actor: Actor, now: datetime | None, reason: str
) -> Company:
    before = company.status
    company.status = status
    company.pause_reason = fields.text(reason, "reason", limit=500) if status != "active" else ""
    company.save(update_fields=["status", "pause_reason", "updated_at"])
    details = {"before": {"status": before}, "after": {"status": status}, "reason": reason}
    _record(company, actor, action, now or timezone.now(), details)
    live.publish(company.id, "agents")
    live.wake()
    return company


def _locked(company: Company) -> Company:
    """The row, fresh. A claim takes the same lock, so that no run slips in beside a pause."""
    return Company.objects.select_for_update(no_key=True).get(id=company.id)


def _member(membership: Membership) -> Membership:
    fresh = Membership.objects.select_related("user", "company").filter(id=membership.pk).first()
    if fresh is None:
        raise NotFound("There is no such member.")
    return fresh


def _keep_an_owner(membership: Membership) -> None:
    owners = Membership.objects.filter(company_id=membership.company_id, role=Role.OWNER)
    if membership.role == Role.OWNER and not owners.exclude(id=membership.pk).exists():
        raise Conflict("last_owner", "A company needs an owner; make somebody else one first.")


def _record(
    company: Company, actor: Actor, action: str, now: datetime, details: Mapping[str, Any]
) -> None:
    activity.record(
        company_id=company.id,
        actor=actor,
        action=action,
        entity_type="company",
        entity_id=company.id,
        entity_name=company.name,
        details=details,
        now=now,
    )


def _record_member(
    membership: Membership, actor: Actor, action: str, now: datetime, details: Mapping[str, Any]
) -> None:
    activity.record(
        company_id=membership.company_id,
        actor=actor,
        action=action,
        entity_type="member",
        entity_id=membership.user_id,
        entity_name=str(membership.user),
        details=details,
        now=now,
    )


def _prefix(prefix: str, name: str) -> str:
    if not prefix:
        return free_prefix(name)
    prefix = fields.text(prefix, "prefix", limit=8, required=True).upper()
    if not _PREFIX.fullmatch(prefix):
        raise Invalid(
            "invalid_prefix", "Two to eight letters or digits, a letter first.", field="prefix"
        )
    return prefix


def _role(role: str) -> str:
    if role not in Role.values:
        raise Invalid("invalid_role", "role is one of " + ", ".join(Role.values), field="role")
    return role


def _cap(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise Invalid("invalid_type", "This must be a number.", field="max_concurrent_agents")
    if not 1 <= value <= MAX_CONCURRENT_AGENTS:
        raise Invalid(
            "out_of_range",
            f"Between 1 and {MAX_CONCURRENT_AGENTS:,} agents.",
            field="max_concurrent_agents",
        )
    return value
