"""The status machine of an issue: which way is open, and why another one is not.

                ┌──────────────────────────────┐
    backlog ⇄ todo → in_progress → in_review → done     (done, cancelled → todo: reopen)
                ⇅        ⇅                               (every open status → cancelled)
              blocked ───┘

Agents keep strictly to the table. People may also close by hand what was never started
(`BY_PEOPLE`): closing an issue that is moot or was solved elsewhere is everyday work.
"""

from __future__ import annotations

from companies.errors import Refusal
from issues.models import Issue

S = Issue.Status

TABLE: dict[str, frozenset[str]] = {
    S.BACKLOG: frozenset({S.TODO, S.CANCELLED}),
    S.TODO: frozenset({S.IN_PROGRESS, S.BLOCKED, S.BACKLOG, S.CANCELLED}),
    S.IN_PROGRESS: frozenset({S.IN_REVIEW, S.BLOCKED, S.DONE, S.TODO, S.CANCELLED}),
    S.IN_REVIEW: frozenset({S.IN_PROGRESS, S.DONE, S.TODO, S.CANCELLED}),
    S.BLOCKED: frozenset({S.TODO, S.IN_PROGRESS, S.CANCELLED}),
    S.DONE: frozenset({S.TODO}),
    S.CANCELLED: frozenset({S.TODO}),
}

BY_PEOPLE: dict[str, frozenset[str]] = {
    S.BACKLOG: frozenset({S.DONE}),
    S.TODO: frozenset({S.DONE}),
    S.BLOCKED: frozenset({S.DONE}),
}

# What each status asks for beyond the way there; shown with a refusal.
NEEDS: dict[str, str] = {
    S.IN_PROGRESS: "an assignee, no open blocker and, for an agent, its checkout",
    S.BLOCKED: "an issue that blocks it, or a reason that says who must do what",
    S.IN_REVIEW: "a reviewer: a pending question or a person",
}


class Unprocessable(Refusal):
    """The wish is well formed and impossible as things stand."""

    status = 422


def targets(status: str, *, person: bool) -> list[str]:
    """Where an issue in `status` may go, in the order of the machine."""
    allowed = TABLE[status] | (BY_PEOPLE.get(status, frozenset()) if person else frozenset())
    return [choice for choice in S.values if choice in allowed]


def check(*, issue: Issue, to: str, person: bool) -> None:
    """Let the step pass, or raise Unprocessable with the steps that are open."""
    allowed = targets(issue.status, person=person)
    if to not in allowed:
        raise refusal(
            issue,
            to,
            "invalid_transition",
            f"An issue that is {word(issue.status)} cannot become {word(to)}.",
            person=person,
        )


def refusal(
    issue: Issue, to: str, code: str, message: str, *, person: bool = False, **details: object
) -> Unprocessable:
    """The "no" to a step, with what a caller needs to choose another one."""
    return Unprocessable(
        code,
        message,
        field="status",
        details={
            "issueId": str(issue.id),
            "status": issue.status,
            "requested": to,
            "allowed": targets(issue.status, person=person),
            **({"needs": NEEDS[to]} if to in NEEDS else {}),
            **details,
        },
    )


def word(status: str) -> str:
    """A status as people write it: "in progress"."""
    return status.replace("_", " ")
