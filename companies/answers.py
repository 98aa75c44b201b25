"""What the API answers about companies, in types: for its description and for the tests.

Answers are written as plain dictionaries (`shapes.py`), several times cheaper than a model class a
row; these classes say what is in them. A test holds the two together, route by route.
"""

from __future__ import annotations

import uuid
from datetime import date, datetime
from typing import Any, Literal

from companies.wire import Answer


class Ok(Answer):
    """It is done."""

    ok: Literal[True]


class Company(Answer):
    id: uuid.UUID
    name: str
    description: str | None
    status: str
    pause_reason: str | None
    issue_prefix: str
    max_concurrent_agents: int
    is_demo: bool
    created_at: datetime
    updated_at: datetime


class CompanyCounts(Answer):
    agent_count: int
    issue_count: int


class Member(Answer):
    id: uuid.UUID
    user_id: uuid.UUID
    name: str
    email: str
    role: Literal["viewer", "operator", "owner"]
    created_at: datetime


class ActivityEntry(Answer):
    id: uuid.UUID
    company_id: uuid.UUID
    actor_type: Literal["user", "agent", "system"]
    actor_id: uuid.UUID | None
    actor_name: str
    action: str
    entity_type: str
    entity_id: uuid.UUID | None
    entity_name: str
    agent_id: uuid.UUID | None
    run_id: uuid.UUID | None
    details: dict[str, Any]
    created_at: datetime


class Goal(Answer):
    id: uuid.UUID
    company_id: uuid.UUID
    title: str
    description: str | None
    level: Literal["company", "team", "agent", "task"]
    status: Literal["planned", "active", "achieved", "cancelled"]
    parent_id: uuid.UUID | None
    owner_agent_id: uuid.UUID | None
    created_at: datetime
    updated_at: datetime


class GoalTitle(Answer):
    id: uuid.UUID
    title: str


class Project(Answer):
    id: uuid.UUID
    company_id: uuid.UUID
    goal_id: uuid.UUID | None
    goal_ids: list[uuid.UUID]
    goals: list[GoalTitle]
    name: str
    description: str | None
    status: Literal["backlog", "planned", "in_progress", "completed", "cancelled"]
    lead_agent_id: uuid.UUID | None
    target_date: date | None
    archived_at: datetime | None
    created_at: datetime
    updated_at: datetime


# --- people and their keys -------------------------------------------------------------------


class Person(Answer):
    id: uuid.UUID
    email: str
    name: str


class SessionOf(Answer):
    user_id: uuid.UUID


class Session(Answer):
    session: SessionOf
    user: Person


class OperatorKey(Answer):
    """A person's own key, without what it opens."""

    id: uuid.UUID
    name: str
    prefix: str
    expires_at: datetime | None
    last_used_at: datetime | None
    created_at: datetime


class ShownOperatorKey(OperatorKey):
    """With the key itself, this once."""

    token: str


class CliChallenge(Answer):
    """A client asks: where a person says yes, and the key that works from then on."""

    id: uuid.UUID
    token: str
    board_api_token: str
    approval_path: str
    approval_url: str
    poll_path: str
    expires_at: datetime
    suggested_poll_interval_ms: int


class CliLogin(Answer):
    id: uuid.UUID
    status: Literal["pending", "approved", "cancelled", "expired"]
    command: str
    client_name: str | None
    requested_from: str
    approved_by_user: Person | None
    expires_at: datetime
    created_at: datetime


class CliMembership(Answer):
    company_id: uuid.UUID
    membership_role: str
    status: Literal["active"]


class CliIdentity(Answer):
    user: Person
    user_id: uuid.UUID
    is_instance_admin: bool
    company_ids: list[uuid.UUID]
    memberships: list[CliMembership]
    source: Literal["board_key", "session"]
    key_id: uuid.UUID | None


class Revoked(Answer):
    revoked: Literal[True]
    key_id: uuid.UUID
