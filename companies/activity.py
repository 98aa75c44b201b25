"""Who did what: one row a change, written in the transaction of the change."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from companies import live, rows
from companies.models import Activity


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts. `type` is user, agent or system; `run_id` when a run acts for its agent."""

    type: str
    id: uuid.UUID | None = None
    name: str = ""
    run_id: uuid.UUID | None = None


SYSTEM = Actor(type="system", name="Paperclip")


def record(
    *,
    company_id: uuid.UUID,
    actor: Actor,
    action: str,
    entity_type: str,
    entity_id: uuid.UUID,
    entity_name: str = "",
    details: Mapping[str, Any] | None = None,
    now: datetime,
) -> Activity:
    """Write one row. `action` reads like `issue.created`; `details` holds before and after."""
    row = Activity(
        company_id=company_id,
        occurred_at=now,
        actor_type=actor.type,
        actor_id=actor.id,
        actor_name=actor.name[:120],
        run_id=actor.run_id,
        action=action,
        entity_type=entity_type,
        entity_id=entity_id,
        entity_name=entity_name[:200],
        details=dict(details or {}),
    )
    rows.insert(row)
    live.publish(company_id, "activity")
    return row
