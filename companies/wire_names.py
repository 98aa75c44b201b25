"""What the fields of verbs are called on the wire."""

from __future__ import annotations

import re

from pydantic.alias_generators import to_camel

from companies.errors import Refusal

# What the verbs call otherwise than the bodies do; all else is only spelt otherwise.
_WIRE_NAMES = {
    "assignee_agent": "assigneeAgentId",
    "assignee_user": "assigneeUserId",
    "blocked_by": "blockedByIssueIds",
    "goal": "goalId",
    "parent": "parentId",
    "project": "projectId",
}


def named(error: Refusal) -> tuple[list[str], str]:
    """Where a body is wrong, and the sentence about it, in the names that the caller has used."""
    if not error.field:
        return [], error.message
    steps = error.field.split(".")
    path = [_WIRE_NAMES.get(step) or to_camel(step) for step in steps]
    message = error.message
    for step, name in zip(steps, path, strict=True):
        if "_" in step:
            message = re.sub(rf"\b{re.escape(step)}(?:_ids?)?\b", name, message)
    return path, message
