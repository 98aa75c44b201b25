"""Approvals are asked for once and, where they allow a deed, used once."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from agents.models import Agent, HeartbeatRun
from companies.models import Activity, Company, User
from issues.models import Approval, Issue
from tests import factories
from tests.api.conftest import Caller, run_caller
from tests.races.threads import many, together

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def path(acme: Company) -> str:
    return f"/api/companies/{acme.id}/approvals"


@pytest.fixture
def wish(issue: Issue) -> dict[str, object]:
    return {"payload": {"title": "Deploy 1.2", "to": ["live"]}, "issueIds": [str(issue.id)]}


# --- asked for once --------------------------------------------------------------------------


def test_five_times_in_one_run_is_one(as_run: Caller, path: str, wish: dict[str, object]) -> None:
    answers = [as_run.send("POST", path, wish) for _ in range(5)]

    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert Approval.objects.count() == 1
    assert Activity.objects.filter(action="approval.requested").count() == 1


def test_five_times_at_once_is_one(
    ada: Agent, issue: Issue, path: str, wish: dict[str, object]
) -> None:
    tokens = [run_caller(factories.running(ada)).token for _ in range(5)]

    answers = many(5, lambda n: Caller(tokens[n]).send("POST", path, wish))

    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert Approval.objects.get().links.get().issue_id == issue.id
    assert Activity.objects.filter(action="approval.requested").count() == 1


def test_blanks_and_the_order_of_keys_make_no_other_wish(
    as_run: Caller, path: str, wish: dict[str, object]
) -> None:
    first = as_run.send("POST", path, wish).json()["id"]
    other = {**wish, "payload": {"to": ["live "], "title": " Deploy  1.2\n"}}

    assert as_run.send("POST", path, other).json()["id"] == first


def test_another_wish_is_another_one(
    as_run: Caller,
    as_olga: Caller,
    bo: Agent,
    acme: Company,
    path: str,
    wish: dict[str, object],
) -> None:
    others = (
        {"payload": {"title": "Deploy 1.3", "to": ["live"]}},
        {"issueIds": []},
        {"issueIds": [str(factories.issue(acme, "Another").id)]},
        {"type": "approve_ceo_strategy"},
        {"singleUse": True},
    )
    ids = {as_run.send("POST", path, wish | other).json()["id"] for other in ({}, *others)}
    ids.add(run_caller(factories.running(bo)).send("POST", path, wish).json()["id"])
    ids.add(as_olga.send("POST", path, wish).json()["id"])

    assert len(ids) == len(others) + 3


def test_a_person_who_asks_twice_asks_once(
    as_olga: Caller, path: str, wish: dict[str, object]
) -> None:
    ids = {as_olga.send("POST", path, wish).json()["id"] for _ in range(2)}
    assert len(ids) == 1


def test_a_wish_that_was_decided_may_be_had_anew(
    as_run: Caller, as_olga: Caller, path: str, wish: dict[str, object]
) -> None:
    first = as_run.send("POST", path, wish).json()["id"]
    as_olga.send("POST", f"/api/approvals/{first}/reject")

    again = as_run.send("POST", path, wish).json()

    assert again["id"] != first
    assert again["status"] == "pending"


def test_a_revision_that_asks_for_what_waits_already_is_refused(
    as_run: Caller, as_olga: Caller, path: str, wish: dict[str, object]
) -> None:
    as_run.send("POST", path, wish)
    other = as_run.send("POST", path, {**wish, "payload": {"title": "Deploy 2"}}).json()["id"]
    as_olga.send("POST", f"/api/approvals/{other}/request-revision")

    body = {"payload": wish["payload"]}
    refused = as_run.send("POST", f"/api/approvals/{other}/resubmit", body)
    revised = as_run.send("POST", f"/api/approvals/{other}/resubmit", {"payload": {"title": "3"}})

    assert (refused.status_code, refused.json()["code"]) == (409, "already_asked")
    assert (revised.status_code, revised.json()["status"]) == (200, "pending")


# --- used once ---------------------------------------------------------------------------------


@pytest.fixture
def permit(as_run: Caller, as_olga: Caller, path: str, wish: dict[str, object]) -> str:
    """The address of a granted single-use approval that Ada asked for."""
    asked = as_run.send("POST", path, {**wish, "singleUse": True}).json()
    assert (asked["singleUse"], asked["consumedAt"]) == (True, None)
    as_olga.send("POST", f"/api/approvals/{asked['id']}/approve")
    return f"/api/approvals/{asked['id']}"


def test_of_two_runs_that_use_it_at_once_one_gets_it(ada: Agent, permit: str) -> None:
    for _ in range(3):  # races are won in several ways
        runs = [factories.running(ada) for _ in range(2)]
        first, second = (run_caller(run).token for run in runs)
        answers = together(
            lambda: Caller(first).send("POST", f"{permit}/consume"),  # noqa: B023
            lambda: Caller(second).send("POST", f"{permit}/consume"),  # noqa: B023
        )

        assert sorted(answer.status_code for answer in answers) == [200, 409]
        lost, won = sorted(answers, key=lambda answer: -answer.status_code)
        assert lost.json()["code"] == "already_consumed"
        assert won.json()["consumedByRunId"] in {str(run.pk) for run in runs}
        used = Approval.objects.get()
        assert str(used.consumed_by_run_id) == won.json()["consumedByRunId"]
        assert Activity.objects.filter(action="approval.consumed").count() >= 1
        Approval.objects.update(consumed_by_run=None, consumed_at=None)


def test_the_run_that_has_it_may_ask_again(as_run: Caller, permit: str) -> None:
    answers = [as_run.send("POST", f"{permit}/consume") for _ in range(2)]

    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()
    assert Activity.objects.filter(action="approval.consumed").count() == 1


def test_what_was_not_granted_cannot_be_used(
    as_run: Caller, as_olga: Caller, path: str, wish: dict[str, object]
) -> None:
    asked = as_run.send("POST", path, {**wish, "singleUse": True}).json()["id"]
    early = as_run.send("POST", f"/api/approvals/{asked}/consume")
    as_olga.send("POST", f"/api/approvals/{asked}/reject")
    late = as_run.send("POST", f"/api/approvals/{asked}/consume")

    assert [(a.status_code, a.json()["code"]) for a in (early, late)] == [(409, "not_approved")] * 2


def test_what_is_there_to_be_read_cannot_be_used(
    as_run: Caller, as_olga: Caller, path: str, wish: dict[str, object]
) -> None:
    asked = as_run.send("POST", path, wish).json()["id"]
    as_olga.send("POST", f"/api/approvals/{asked}/approve")

    refused = as_run.send("POST", f"/api/approvals/{asked}/consume")

    assert (refused.status_code, refused.json()["code"]) == (409, "not_single_use")


def test_a_run_that_has_nothing_to_do_with_it_may_not_use_it(
    bo: Agent, issue: Issue, adas_run: HeartbeatRun, permit: str
) -> None:
    refused = run_caller(factories.running(bo)).send("POST", f"{permit}/consume")
    assert (refused.status_code, refused.json()["code"]) == (403, "not_yours")

    HeartbeatRun.objects.filter(pk=adas_run.pk).update(
        status="succeeded", finished_at=timezone.now()
    )
    about_it = run_caller(factories.running(bo, issue)).send("POST", f"{permit}/consume")
    assert about_it.status_code == 200


def test_a_key_is_no_run_unless_it_names_one(
    as_ada: Caller, adas_run: HeartbeatRun, permit: str
) -> None:
    refused = as_ada.send("POST", f"{permit}/consume")
    assert (refused.status_code, refused.json()["code"]) == (403, "runs_only")

    named = as_ada.send("POST", f"{permit}/consume", X_Paperclip_Run_Id=str(adas_run.pk))
    assert named.json()["consumedByRunId"] == str(adas_run.pk)


def test_the_one_who_decides_sees_that_it_is_for_one_use(
    as_run: Caller, olga: User, path: str, wish: dict[str, object]
) -> None:
    asked = as_run.send("POST", path, {**wish, "singleUse": True}).json()["id"]
    browser = Client()
    browser.force_login(olga)

    page = browser.get(f"/c/ACM/inbox/?item={asked}").content.decode()

    assert "once, by one run" in page
