"""The number of a new issue: ACM-1, ACM-2, … A number is given once, whatever is refused later."""

from __future__ import annotations

import uuid

from django.db import connection

from companies import rows

# One row a company hands out its numbers, so whoever takes one waits for whoever has it locked.
_TAKE = """
INSERT INTO issues_issuecounter (company_id, last_number) VALUES (%s, 1)
ON CONFLICT (company_id) DO UPDATE SET last_number = issues_issuecounter.last_number + 1
RETURNING last_number, (SELECT issue_prefix FROM companies_company c WHERE c.id = company_id)
"""
_TAKE_AT_ONCE = """
WITH at_once AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))
INSERT INTO issues_issuecounter (company_id, last_number) SELECT %s, 1 FROM at_once
ON CONFLICT (company_id) DO UPDATE SET last_number = issues_issuecounter.last_number + 1
RETURNING last_number, (SELECT issue_prefix FROM companies_company c WHERE c.id = company_id)
"""


def take(company_id: uuid.UUID) -> tuple[int, str]:
    """The company's next number, and the identifier that it makes (`ACM-1`).

    Outside of a transaction it is a transaction of its own and does not wait for the disk: else a
    company could only write one new issue after the other, each as long as the disk takes. The log
    is written in order, so whenever an issue is on the disk, its number's being taken is as well.
    Inside of one the counter stays locked until the end, and the number comes back with a rollback.
    """
    statement = _TAKE if connection.in_atomic_block else _TAKE_AT_ONCE
    ((number, prefix),) = rows.ask(statement, [company_id])
    return number, f"{prefix}-{number}"
