"""Who may do what: one kind of principal for people, agents and runs, one question `authorize`.

Every object is loaded through the principal's company; what lies outside is "not found", so that
nobody learns what exists elsewhere.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from django.db.models import F, QuerySet

from companies import rows
from companies.activity import Actor
from companies.errors import Forbidden, NotFound
from companies.models import Company, Membership, User

Kind = Literal["user", "agent", "run", "system"]
Action = Literal["view", "operate", "manage", "work"]

ROLES: dict[str, frozenset[Action]] = {
    Membership.Role.VIEWER: frozenset({"view"}),
    Membership.Role.OPERATOR: frozenset({"view", "operate"}),
    Membership.Role.OWNER: frozenset({"view", "operate", "manage"}),
}
AGENT_MAY: frozenset[Action] = frozenset({"view", "work"})


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is calling, already proved. Agents and runs belong to exactly one company.

    `roles` are a person's by company, when the proof of this very request has brought them.
    """

    kind: Kind
    name: str = ""
    user_id: uuid.UUID | None = None
    agent_id: uuid.UUID | None = None
    company_id: uuid.UUID | None = None
    run_id: uuid.UUID | None = None
    scopes: frozenset[str] = frozenset()
    roles: Mapping[uuid.UUID, str] | None = field(default=None, compare=False)

    @property
    def key(self) -> str:
        """A short name for throttles and idempotency records."""
        return f"{self.kind}:{self.run_id or self.agent_id or self.user_id or ''}"

    @property
    def actor(self) -> Actor:
        if self.kind == "user":
            return Actor("user", self.user_id, self.name)
        if self.kind == "system":
            return Actor("system", None, self.name)
        return Actor("agent", self.agent_id, self.name, self.run_id)


SYSTEM = Principal(kind="system", name="Paperclip")


def for_user(user: User) -> Principal:
    """The principal of a signed-in person."""
    return Principal(kind="user", user_id=user.pk, name=str(user))


def role(principal: Principal, company_id: uuid.UUID) -> str | None:
    """A person's role in a company, None for a stranger."""
    if principal.user_id is None:
        return None
    if principal.roles is not None:
        return principal.roles.get(company_id)
    return (
        Membership.objects.filter(company_id=company_id, user_id=principal.user_id)
        .values_list("role", flat=True)
        .first()
    )


def authorize(principal: Principal, action: Action, company_id: uuid.UUID) -> None:
    """Let pass or raise: NotFound for a strange company, Forbidden for a missing right."""
    if principal.kind == "system":
        return
    if principal.kind in ("agent", "run"):
        if principal.company_id != company_id:
            raise NotFound()
        if action not in AGENT_MAY:
            raise Forbidden("agent_forbidden", "An agent may not do this.")
        return
    held = role(principal, company_id)
    if held is None:
        raise NotFound()
    _check_role(held, action)


def _check_role(held: str, action: Action) -> None:
    if action == "work":
        raise Forbidden("agents_only", "Only an agent does this.")
    if action not in ROLES[held]:
        raise Forbidden("role_forbidden", f"Your role ({held}) may not do this.")


def companies(principal: Principal) -> QuerySet[Company]:
    """The companies a principal can see, archived ones included, by name."""
    if principal.kind == "system":
        return Company.objects.all()
    if principal.kind in ("agent", "run") and principal.company_id:
        return Company.objects.filter(id=principal.company_id)
    if principal.kind == "user" and principal.user_id:
        return Company.objects.filter(memberships__user_id=principal.user_id)
    return Company.objects.none()


def company_ids(principal: Principal) -> list[uuid.UUID]:
    """The ids of the companies that a principal can see."""
    if principal.company_id is not None:
        return [principal.company_id]
    if principal.roles is not None:
        return list(principal.roles)
    return list(companies(principal).order_by().values_list("id", flat=True))


def company(principal: Principal, ref: str | uuid.UUID, action: Action = "view") -> Company:
    """The company that `ref` (UUID or issue prefix) names. Raises NotFound or Forbidden."""
    known = _id(ref)
    if known is not None and principal.roles is not None:
        held = rows.find(Company, id=company_id(principal, known, action))
        if held is None:
            raise NotFound("There is no such company.")
        return held
    # What no prefix can hold, the database cannot even be asked about.
    wanted = {"id": known} if known else {"issue_prefix": str(ref).upper()[:8].replace("\x00", "?")}
    seen = companies(principal).filter(**wanted)
    if principal.kind == "user":  # the membership that finds the company tells the role as well
        seen = seen.annotate(held_role=F("memberships__role"))
    found = seen.first()
    if found is None:
        raise NotFound("There is no such company.")
    if principal.kind == "user":
        _check_role(found.held_role, action)  # type: ignore[attr-defined]
    else:
        authorize(principal, action, found.id)
    return found


def company_id(principal: Principal, ref: str | uuid.UUID, action: Action = "view") -> uuid.UUID:
    """The id of the company that `ref` names, for those who need no more of it. Costs no statement
    when the proof of the caller has told already where they belong. Raises NotFound, Forbidden."""
    known = _id(ref)
    if known is None or (principal.roles is None and principal.company_id is None):
        return company(principal, ref, action).id
    try:
        authorize(principal, action, known)
    except NotFound:
        raise NotFound("There is no such company.") from None
    return known


def _id(ref: str | uuid.UUID) -> uuid.UUID | None:
    try:
        return ref if isinstance(ref, uuid.UUID) else uuid.UUID(ref)
    except (ValueError, AttributeError):
        return None
