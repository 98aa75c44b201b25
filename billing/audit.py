"""Proof that the books agree: what the ledger adds up to is what the totals and the runs say, and
what is kept aside is what reservations hold.

Each check is one statement that returns only what is wrong, so an empty answer is the proof.
Run by `manage.py billing_check`, by the minute's round and at the end of the money tests.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection


@dataclass(frozen=True, slots=True)
class Drift:
    """One place where the books disagree, by name of the check."""

    check: str
    where: str
    ledger: int
    total: int


_SCOPED = """
    SELECT company_id, 'agent' AS scope, agent_id AS scope_id, occurred_at, cost_micros,
           GREATEST(0, input_tokens - cache_read_tokens) + output_tokens AS tokens
      FROM billing_costevent
    UNION ALL
    SELECT company_id, 'project', project_id, occurred_at, cost_micros,
           GREATEST(0, input_tokens - cache_read_tokens) + output_tokens
      FROM billing_costevent WHERE project_id IS NOT NULL
    UNION ALL
    SELECT company_id, 'company', company_id, occurred_at, cost_micros,
           GREATEST(0, input_tokens - cache_read_tokens) + output_tokens
      FROM billing_costevent
"""

# Built of constants of this file alone.
_LEDGER = f"""
WITH scoped AS ({_SCOPED}), ledger AS (
    SELECT scope, scope_id, "window", period_start,
           COALESCE(SUM(cost_micros), 0) AS spent, COUNT(*) AS events,
           COUNT(*) FILTER (WHERE cost_micros IS NULL) AS unpriced,
           COALESCE(SUM(tokens), 0) AS tokens
      FROM scoped CROSS JOIN LATERAL (VALUES
           ('day', (occurred_at AT TIME ZONE 'UTC')::date),
           ('month', date_trunc('month', occurred_at AT TIME ZONE 'UTC')::date),
           ('lifetime', DATE '1970-01-01')) AS period ("window", period_start)
     GROUP BY 1, 2, 3, 4)
SELECT concat_ws(' ', scope, scope_id, "window", period_start),
       COALESCE(ledger.{{ledger}}, 0), COALESCE(total.{{total}}, 0)
  FROM ledger FULL JOIN billing_spend total USING (scope, scope_id, "window", period_start)
 WHERE COALESCE(ledger.{{ledger}}, 0) <> COALESCE(total.{{total}}, 0)
"""  # noqa: S608

CHECKS: dict[str, str] = {
    "ledger = totals": _LEDGER.format(ledger="spent", total="spent_micros"),
    "events = totals": _LEDGER.format(ledger="events", total="events"),
    "unpriced = totals": _LEDGER.format(ledger="unpriced", total="unpriced_events"),
    "tokens = totals": _LEDGER.format(ledger="tokens", total="tokens"),
    "ledger = runs": """
        SELECT run.id::text, COALESCE(ledger.spent, 0), run.cost_micros
          FROM agents_heartbeatrun run
          LEFT JOIN (SELECT run_id, SUM(cost_micros) AS spent FROM billing_costevent
                      WHERE run_id IS NOT NULL GROUP BY run_id) ledger ON ledger.run_id = run.id
         WHERE COALESCE(ledger.spent, 0) <> run.cost_micros
    """,
    "reservations = totals": """
        WITH kept AS (
            SELECT scope, scope_id, "window", period_start, SUM(open_micros) AS open
              FROM billing_reservation held
              CROSS JOIN LATERAL (VALUES ('agent', agent_id), ('project', project_id),
                                         ('company', company_id)) AS whose (scope, scope_id)
              CROSS JOIN LATERAL (VALUES
                   ('day', (granted_at AT TIME ZONE 'UTC')::date),
                   ('month', date_trunc('month', granted_at AT TIME ZONE 'UTC')::date),
                   ('lifetime', DATE '1970-01-01')) AS period ("window", period_start)
             WHERE state IN ('held', 'unknown') AND scope_id IS NOT NULL
             GROUP BY 1, 2, 3, 4)
        SELECT concat_ws(' ', scope, scope_id, "window", period_start),
               COALESCE(kept.open, 0), COALESCE(total.reserved_micros, 0)
          FROM kept FULL JOIN billing_spend total USING (scope, scope_id, "window", period_start)
         WHERE COALESCE(kept.open, 0) <> COALESCE(total.reserved_micros, 0)
    """,
    "one key, one event": """
        SELECT booked.key, COUNT(event.id), 1
          FROM billing_costkey booked
          LEFT JOIN billing_costevent event ON event.id = booked.event_id
         GROUP BY booked.company_id, booked.key HAVING COUNT(event.id) <> 1
    """,
    "totals within a company": """
        SELECT concat_ws(' ', total.scope, total.scope_id), 0, 1
          FROM billing_spend total
          LEFT JOIN agents_agent agent ON total.scope = 'agent' AND agent.id = total.scope_id
          LEFT JOIN companies_project project
                 ON total.scope = 'project' AND project.id = total.scope_id
         WHERE COALESCE(agent.company_id, project.company_id, total.scope_id) <> total.company_id
    """,
}


def drifts(limit: int = 50) -> list[Drift]:
    """Everything that does not agree, at most `limit` a check; empty when the books are right."""
    found = []
    with connection.cursor() as cursor:
        for check, statement in CHECKS.items():
            # The statements are constants of this file.
            cursor.execute(f"{statement} LIMIT %s", [limit])
            found += [
                Drift(check, where, int(ledger), int(total))
                for where, ledger, total in cursor.fetchall()
            ]
    return found
