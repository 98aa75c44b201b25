"""The doors of the house: roles, one-time links, throttles, partitions ahead."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.utils import IntegrityError

from agents import auth
from agents.models import Agent
from companies import access, activity, operator_keys, partitions, sign_in, throttle
from companies.errors import Forbidden, Invalid, NotFound, RateLimited
from companies.models import Activity, Company, User


def test_a_viewer_may_look_and_no_more(acme: Company, vera: User) -> None:
    principal = access.for_user(vera)
    access.authorize(principal, "view", acme.id)
    for action in ("operate", "manage"):
        with pytest.raises(Forbidden):
            access.authorize(principal, action, acme.id)


def test_an_operator_may_not_manage(acme: Company, otto: User) -> None:
    access.authorize(access.for_user(otto), "operate", acme.id)
    with pytest.raises(Forbidden):
        access.authorize(access.for_user(otto), "manage", acme.id)


def test_a_stranger_cannot_tell_a_foreign_company_from_none(acme: Company, oscar: User) -> None:
    for ref in (acme.id, acme.issue_prefix, "NONE", "not-a-uuid", ""):
        with pytest.raises(NotFound):
            access.company(access.for_user(oscar), ref)


def test_an_agent_works_in_its_own_company_only(acme: Company, globex: Company, ada: Agent) -> None:
    principal = access.Principal(kind="agent", agent_id=ada.id, company_id=acme.id)
    access.authorize(principal, "work", acme.id)
    with pytest.raises(NotFound):
        access.authorize(principal, "view", globex.id)
    with pytest.raises(Forbidden):
        access.authorize(principal, "manage", acme.id)


def test_a_company_is_found_by_its_prefix_too(acme: Company, olga: User) -> None:
    assert access.company(access.for_user(olga), "acm") == acme


def test_a_proved_key_brings_its_persons_roles_along(
    acme: Company, globex: Company, vera: User, now: datetime, django_assert_num_queries: Any
) -> None:
    _, token = operator_keys.create(user=vera, name="CLI", now=now)
    auth.principal_for_token(token, now=now)  # the key's last use is noted once a minute

    with django_assert_num_queries(1):
        principal = auth.principal_for_token(token, now=now)
        assert principal is not None
        assert access.company_id(principal, str(acme.id)) == acme.id
        for stranger in (globex.id, uuid.uuid4()):
            with pytest.raises(NotFound):
                access.company_id(principal, stranger)
        with pytest.raises(Forbidden):
            access.company_id(principal, acme.id, "operate")

    assert access.company_id(principal, "ACM") == acme.id
    assert access.company(principal, acme.id) == acme
    for ref in (globex.id, globex.issue_prefix, "not-a-uuid", ""):
        with pytest.raises(NotFound):
            access.company(principal, ref)


def test_roles_end_with_the_membership(acme: Company, vera: User, now: datetime) -> None:
    _, token = operator_keys.create(user=vera, name="CLI", now=now)
    vera.memberships.all().delete()

    principal = auth.principal_for_token(token, now=now)

    assert principal is not None
    with pytest.raises(NotFound):
        access.company_id(principal, acme.id)


def test_a_sign_in_link_works_once(olga: User, now: datetime) -> None:
    token = sign_in.make_link(user=olga, now=now)
    assert sign_in.redeem(token=token, now=now) == olga
    assert sign_in.redeem(token=token, now=now) is None


def test_a_sign_in_link_ends_with_its_day(olga: User, now: datetime) -> None:
    token = sign_in.make_link(user=olga, now=now)
    assert sign_in.redeem(token=token, now=now + timedelta(hours=25)) is None
    assert sign_in.redeem(token="x" * 43, now=now) is None


def test_a_throttle_counts_up_to_its_limit(db: None) -> None:
    moment = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)
    left = [throttle.hit("login:x", limit=3, window_seconds=60, now=moment) for _ in range(3)]
    assert left == [2, 1, 0]
    with pytest.raises(RateLimited) as refused:
        throttle.hit("login:x", limit=3, window_seconds=60, now=moment)
    assert refused.value.retry_after == 31
    assert throttle.hit("login:x", limit=3, window_seconds=60, now=moment + timedelta(minutes=1))


def test_an_operator_key_needs_a_name_and_a_future(olga: User, now: datetime) -> None:
    key, token = operator_keys.create(user=olga, name="laptop", now=now)
    assert key.digest not in token
    for name, expiry in (("", None), ("x" * 121, None), ("late", now)):
        with pytest.raises(Invalid):
            operator_keys.create(user=olga, name=name, now=now, expires_at=expiry)


def test_a_key_is_revoked_by_its_owner_only(olga: User, oscar: User, now: datetime) -> None:
    key, _ = operator_keys.create(user=olga, name="laptop", now=now)
    with pytest.raises(NotFound):
        operator_keys.revoke(user=oscar, key_id=key.id, now=now)
    operator_keys.revoke(user=olga, key_id=key.id, now=now)


def test_activity_can_be_neither_changed_nor_deleted(acme: Company, now: datetime) -> None:
    made = activity.record(
        company_id=acme.id,
        actor=activity.SYSTEM,
        action="company.created",
        entity_type="company",
        entity_id=acme.id,
        now=now,
    )
    for change in (
        lambda: Activity.objects.filter(id=made).update(action="nothing"),
        lambda: Activity.objects.filter(id=made)._raw_delete("default"),
    ):
        with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
            change()


@pytest.mark.django_db
@pytest.mark.parametrize("table", [t.table for t in partitions.TABLES])
def test_partitions_stand_three_months_ahead(table: str) -> None:
    december = datetime(2031, 12, 31, 23, 59, 59, tzinfo=UTC)
    made = partitions.ensure(table, now=december)
    assert made == [f"{table}_2031_12", *(f"{table}_2032_0{n}" for n in (1, 2, 3))]
    assert partitions.ensure(table, now=december) == []
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {table}_default")
        assert cursor.fetchone() == (0,)
