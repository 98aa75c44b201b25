"""Which issue a cost belongs to, where its run has worked on several.

Each receipt has one issue, so that what issues cost adds up to what the company spent: the issue
that the run has in hand when it reports (the one it took last), else the one it is about, else the
last that it had. So a run's cost is split among its issues by its receipts, and never counted
twice.
"""

from __future__ import annotations

from django.db import connection

from billing.models import CostEvent

_HELD = """
SELECT issue.id, issue.project_id, issue.goal_id, issue.billing_code
  FROM agents_heartbeatrun run
  JOIN issues_issue issue ON issue.company_id = run.company_id AND issue.id = coalesce(
       (SELECT issue_id FROM issues_checkout
         WHERE run_id = run.id AND created_at <= %(at)s
           AND (released_at IS NULL OR released_at > %(at)s)
         ORDER BY created_at DESC, id DESC LIMIT 1),
       run.issue_id,
       (SELECT issue_id FROM issues_checkout
         WHERE run_id = run.id AND created_at <= %(at)s
         ORDER BY released_at DESC, id DESC LIMIT 1))
 WHERE run.id = %(run_id)s AND run.company_id = %(company_id)s
"""


def settle(event: CostEvent) -> None:
    """Give an event that is about to be booked its issue, with the project, goal and billing code
    of that. What was said of an event without an issue stays as it was said."""
    with connection.cursor() as cursor:
        cursor.execute(
            _HELD,
            {"at": event.occurred_at, "run_id": event.run_id, "company_id": event.company_id},
        )
        found = cursor.fetchone()
    if found is None or found[0] == event.issue_id:
        return
    issue_id, project_id, goal_id, billing_code = found
    if event.issue_id is None:
        project_id = event.project_id or project_id
        goal_id = event.goal_id or goal_id
        billing_code = event.billing_code or billing_code
    event.issue_id, event.project_id, event.goal_id = issue_id, project_id, goal_id
    event.billing_code = billing_code
