"""What an issue can be given to or put under: agents, people, projects, goals, labels.

All in one statement, written by hand: it is on every page with a filter or a form of an issue.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from django.db import connection

Option = tuple[str, str]  # id, name


@dataclass(slots=True)
class Choices:
    agents: list[Option] = field(default_factory=list)
    people: list[Option] = field(default_factory=list)
    projects: list[Option] = field(default_factory=list)
    goals: list[Option] = field(default_factory=list)
    labels: list[Option] = field(default_factory=list)


_CHOICES = """
SELECT 'agents', id, name FROM agents_agent
WHERE company_id = %(company)s AND status <> 'terminated'
UNION ALL
SELECT 'people', u.id, coalesce(nullif(u.name, ''), u.email)
FROM companies_membership m JOIN companies_user u ON u.id = m.user_id
WHERE m.company_id = %(company)s
UNION ALL
SELECT 'projects', id, name FROM companies_project
WHERE company_id = %(company)s AND archived_at IS NULL
UNION ALL
SELECT 'goals', id, title FROM companies_goal
WHERE company_id = %(company)s AND status <> 'cancelled'
UNION ALL
SELECT 'labels', id, name FROM issues_label WHERE company_id = %(company)s
"""


def load(company_id: uuid.UUID) -> Choices:
    """Everything of the company that a person may choose, by name."""
    with connection.cursor() as cursor:
        cursor.execute(_CHOICES, {"company": company_id})
        rows = cursor.fetchall()
    choices = Choices()
    for kind, key, name in sorted(rows, key=lambda row: (row[0], row[2].lower())):
        getattr(choices, kind).append((str(key), name))
    return choices
