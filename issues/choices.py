"""What an issue can be given to or put under: agents, people, projects, goals, labels.

All in one query.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from django.db.models import CharField, F, QuerySet, Value
from django.db.models.functions import Coalesce, NullIf

from agents.models import Agent
from companies.models import Goal, Membership, Project
from issues.document_models import Label

Option = tuple[str, str]  # id, name


@dataclass(slots=True)
class Choices:
    agents: list[Option] = field(default_factory=list)
    people: list[Option] = field(default_factory=list)
    projects: list[Option] = field(default_factory=list)
    goals: list[Option] = field(default_factory=list)
    labels: list[Option] = field(default_factory=list)


def load(company_id: uuid.UUID) -> Choices:
    """Everything of the company that a person may choose, by name."""
    agents = Agent.objects.for_company(company_id).exclude(status=Agent.Status.TERMINATED)
    people = Membership.objects.for_company(company_id)
    projects = Project.objects.for_company(company_id).filter(archived_at=None)
    goals = Goal.objects.for_company(company_id).exclude(status=Goal.Status.CANCELLED)
    person = Coalesce(NullIf("user__name", Value("")), "user__email", output_field=CharField())
    rows = _named(agents, "agents", "id", F("name")).union(
        _named(people, "people", "user_id", person),
        _named(projects, "projects", "id", F("name")),
        _named(goals, "goals", "id", F("title")),
        _named(Label.objects.for_company(company_id), "labels", "id", F("name")),
        all=True,
    )
    choices = Choices()
    for kind, key, name in sorted(rows, key=lambda row: (row[0], str(row[2]).lower())):
        getattr(choices, kind).append((str(key), name))
    return choices


def _named(found: QuerySet, kind: str, key: str, name: object) -> QuerySet:
    text = CharField()
    return (
        found.order_by()
        .annotate(kind=Value(kind, output_field=text), key=F(key), label=name)
        .values_list("kind", "key", "label")
    )
