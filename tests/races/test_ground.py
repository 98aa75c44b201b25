"""Two who make the same new thing of the ground floor at once: both get it, nobody an error."""

from __future__ import annotations

from datetime import datetime

import pytest

from companies import secrets, tenancy
from companies.activity import SYSTEM
from companies.models import Company, Membership, Secret, User
from tests.races.threads import one_inside_the_other

pytestmark = pytest.mark.django_db(transaction=True)


def test_two_values_of_one_new_secret_are_two_versions(acme: Company, now: datetime) -> None:
    def put(value: str) -> Secret:
        return secrets.put(company=acme, name="KEY", value=value, actor=SYSTEM, now=now)

    first, second = one_inside_the_other(lambda: put("one"), lambda: put("two"))

    assert (first.version, second.version) == (1, 2)
    assert secrets.reveal(company_id=acme.id, names=["KEY"], now=now) == {"KEY": "two"}


def test_a_new_person_invited_by_two_companies_is_one_person(
    acme: Company, globex: Company, now: datetime
) -> None:
    def invite(company: Company) -> Membership:
        return tenancy.invite(
            company=company, email="nina@example.com", role="viewer", actor=SYSTEM, now=now
        )

    first, second = one_inside_the_other(lambda: invite(acme), lambda: invite(globex))

    assert first.user_id == second.user_id
    assert User.objects.get(email="nina@example.com").memberships.count() == 2
