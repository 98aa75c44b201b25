"""Companies and their members."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from companies import tenancy
from companies.activity import Actor
from companies.errors import Conflict, Invalid
from companies.models import Activity, Company, Membership, User
from issues import board
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def by_olga(olga: User) -> Actor:
    return Actor("user", olga.id, "Olga")


def test_a_company_has_an_owner_and_numbers_its_issues(olga: User) -> None:
    company = tenancy.create(name="Initech", owner=olga)
    assert company.issue_prefix == "INI"
    assert Membership.objects.get().role == "owner"
    issue = board.create(company=company, actor=Actor("user", olga.id), title="T")
    assert issue.identifier == "INI-1"
    assert Activity.objects.filter(action="company.created", company=company).exists()


@pytest.mark.parametrize(
    ("name", "prefix"),
    [("Acme", "ACM2"), ("A", "ACO"), ("7 Dwarfs", "DWA"), ("日本", "COC"), ("Él Toro", "LTO")],
)
def test_a_prefix_is_made_and_kept_free(name: str, prefix: str, acme: Company) -> None:
    assert tenancy.free_prefix(name) == prefix


def test_a_wanted_prefix_must_be_free(acme: Company, olga: User) -> None:
    with pytest.raises(Conflict) as refusal:
        tenancy.create(name="Another", owner=olga, prefix="acm")
    assert refusal.value.field == "prefix"
    assert Company.objects.count() == 1


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 121}, "name"),
        ({"name": "a\x00"}, "name"),
        ({"name": 3}, "name"),
        ({"name": "N", "prefix": "1A"}, "prefix"),
        ({"name": "N", "prefix": "A-B"}, "prefix"),
        ({"name": "N", "prefix": "X"}, "prefix"),
        ({"name": "N", "description": "x" * 20_001}, "description"),
    ],
)
def test_bad_input_names_its_field(fields: dict, field: str, olga: User) -> None:
    with pytest.raises(Invalid) as refusal:
        tenancy.create(owner=olga, **fields)
    assert refusal.value.field == field


def test_an_update_is_recorded_with_before_and_after(acme: Company, by_olga: Actor) -> None:
    changed = tenancy.update(company=acme, changes={"max_concurrent_agents": 7}, actor=by_olga)
    details = Activity.objects.get(action="company.updated").details
    assert changed.max_concurrent_agents == 7
    assert details == {
        "before": {"max_concurrent_agents": 5},
        "after": {"max_concurrent_agents": 7},
    }


def test_no_change_is_no_activity(acme: Company, by_olga: Actor) -> None:
    tenancy.update(company=acme, changes={"name": "Acme"}, actor=by_olga)
    assert not Activity.objects.exists()


@pytest.mark.parametrize("cap", [0, -1, 1_001, "5", True, None, 2.5])
def test_the_cap_is_a_number_in_its_range(cap: object, acme: Company, by_olga: Actor) -> None:
    with pytest.raises(Invalid):
        tenancy.update(company=acme, changes={"max_concurrent_agents": cap}, actor=by_olga)


def test_the_prefix_stays(acme: Company, by_olga: Actor) -> None:
    with pytest.raises(Invalid):
        tenancy.update(company=acme, changes={"issue_prefix": "NEW"}, actor=by_olga)


def test_pause_and_resume(acme: Company, by_olga: Actor) -> None:
    paused = tenancy.pause(company=acme, actor=by_olga, reason="Holidays")
    assert (paused.status, paused.pause_reason) == ("paused", "Holidays")
    resumed = tenancy.resume(company=acme, actor=by_olga)
    assert (resumed.status, resumed.pause_reason) == ("active", "")
    tenancy.resume(company=acme, actor=by_olga)
    assert Activity.objects.filter(action="company.resumed").count() == 1


def test_an_archived_company_comes_back_paused(acme: Company, by_olga: Actor) -> None:
    tenancy.archive(company=acme, actor=by_olga)
    with pytest.raises(Conflict):
        tenancy.resume(company=acme, actor=by_olga)
    assert tenancy.restore(company=acme, actor=by_olga).status == "paused"
    with pytest.raises(Conflict):
        tenancy.restore(company=acme, actor=by_olga)


# --- members ---------------------------------------------------------------------------------


def test_an_unknown_person_gets_an_account_without_a_password(
    acme: Company, by_olga: Actor
) -> None:
    made = tenancy.invite(
        company=acme, email=" New@Example.com", role="viewer", name="New", actor=by_olga
    )
    assert (made.user.email, made.role) == ("new@example.com", "viewer")
    assert not made.user.has_usable_password()


def test_a_known_person_is_added(acme: Company, oscar: User, by_olga: Actor) -> None:
    made = tenancy.invite(company=acme, email="OSCAR@example.com", role="operator", actor=by_olga)
    assert made.user == oscar
    with pytest.raises(Conflict):
        tenancy.invite(company=acme, email="oscar@example.com", role="viewer", actor=by_olga)


@pytest.mark.parametrize(
    ("email", "role"),
    [("", "viewer"), ("nobody", "viewer"), ("a@b\x00.c", "viewer"), ("a@example.com", "king")],
)
def test_a_bad_invitation_is_refused(email: str, role: str, acme: Company, by_olga: Actor) -> None:
    with pytest.raises(Invalid):
        tenancy.invite(company=acme, email=email, role=role, actor=by_olga)
    assert acme.members.count() == 1


def test_a_company_keeps_an_owner(acme: Company, olga: User, otto: User, by_olga: Actor) -> None:
    owner = Membership.objects.get(user=olga)
    for verb in (
        lambda: tenancy.remove_member(membership=owner, actor=by_olga),
        lambda: tenancy.set_role(membership=owner, role="viewer", actor=by_olga),
    ):
        with pytest.raises(Conflict):
            verb()
    tenancy.set_role(membership=Membership.objects.get(user=otto), role="owner", actor=by_olga)
    tenancy.remove_member(membership=owner, actor=by_olga)
    assert list(acme.members.all()) == [otto]


def test_members_are_listed_owners_first(acme: Company, vera: User, otto: User, olga: User) -> None:
    assert [one.user for one in tenancy.members(acme)] == [olga, otto, vera]


@pytest.mark.django_db(transaction=True)
def test_two_owners_cannot_leave_at_once() -> None:
    olga, otto = factories.user("Olga"), factories.user("Otto")
    acme = factories.company("Acme", "ACM", owner=olga)
    factories.member(acme, otto, "owner")
    by = Actor("system")

    def leave(membership: Membership) -> str:
        try:
            tenancy.remove_member(membership=membership, actor=by)
            return "gone"
        except Conflict:
            return "stays"
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        results = sorted(pool.map(leave, list(acme.memberships.all())))
    assert results == ["gone", "stays"]
