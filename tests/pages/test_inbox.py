"""The inbox: decisions of all kinds, their context, and what a person does with them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from agents.models import Agent, HeartbeatRun, Hold
from companies.activity import Actor
from companies.models import Company, User
from issues import approvals, desk, documents
from issues.models import Approval, InboxMark, Issue
from paperclip import dashboard
from tests import factories
from tests.pages.conftest import Scene
from tests.pages.test_bulk_and_board import text, undo


def ask(company: Company, agent: Agent, **payload: object) -> Approval:
    actor = Actor("agent", agent.id, agent.name)
    return approvals.request(
        company=company, type="request_board_approval", payload=payload, actor=actor
    )


def test_everything_that_needs_a_person_is_in_it(
    olgas: Client, acme: Company, scene: Scene
) -> None:
    ask(acme, scene.ada, title="Move the launch")
    factories.hold(scene.bo, Hold.Reason.AGENT_BUDGET, "$5.00 of $5.00")
    Agent.objects.filter(id=scene.bo.id).update(error_code="rate_limited")
    handed = factories.issue(acme, "Polish it", status="in_review", assignee=scene.ada)
    page = text(olgas.get("/c/ACM/inbox/"))
    for words in ("Move the launch", "Bo asks", "To review", "Bo: Too many requests", "Bo is on"):
        assert words in page
    assert handed.title in page
    assert page.count("desk-row") == 5


def test_what_is_to_review_is_shown_where_it_is_accepted(
    olgas: Client, oscars: Client, acme: Company, scene: Scene
) -> None:
    handed = factories.issue(acme, "Polish it", status="in_review", assignee=scene.ada)
    factories.comment(handed, "It gleams, **twice**.", author=scene.ada)
    factories.comment(handed, "Which cloth?", author=factories.user("Percy"))
    ada = Actor("agent", scene.ada.id, "Ada")
    documents.put(issue=handed, key="report", title="How", body="With a cloth.", actor=ada)
    address = f"/c/ACM/issues/{handed.identifier}/handed-in"
    assert f'hx-get="{address}"' in text(olgas.get(f"/c/ACM/inbox/?item={handed.id}"))
    page = text(olgas.get(address))
    assert "It gleams, <strong>twice</strong>." in page
    assert f"/c/ACM/issues/{handed.identifier}/documents/report" in page
    assert "Which cloth?" not in page  # what a person asked is no result
    assert oscars.get(address).status_code == 404


def test_what_nobody_wrote_a_word_about_says_so(olgas: Client, acme: Company, scene: Scene) -> None:
    handed = factories.issue(acme, "Polish it", status="in_review", assignee=scene.ada)
    page = text(olgas.get(f"/c/ACM/issues/{handed.identifier}/handed-in"))
    assert "Nobody wrote what came of it." in page


def test_the_badge_counts_what_the_inbox_shows(
    olgas: Client, olga: User, acme: Company, scene: Scene, now: datetime
) -> None:
    asked = ask(acme, scene.ada, title="Move the launch")
    hold = factories.hold(scene.bo, Hold.Reason.LOOP)
    Agent.objects.filter(id=scene.bo.id).update(error_code="rate_limited")
    review = factories.issue(acme, "Polish it", status="in_review", assignee=scene.ada)
    kinds = [asked.id, hold.id, review.id, scene.failed_run.id, scene.question]
    for left, ref in zip(range(5, 0, -1), kinds, strict=True):
        shown = desk.of(company_id=acme.id, user=olga, now=now + timedelta(minutes=1)).waiting
        assert len(shown) == dashboard.badges(acme, olga)["needs_you"] == left
        olgas.post(f"/c/ACM/inbox/{ref}/aside")
    assert dashboard.badges(acme, olga)["needs_you"] == 0


def test_the_badge_is_one_statement(olga: User, acme: Company, scene: Scene) -> None:
    with CaptureQueriesContext(connection) as captured:
        dashboard.badges(acme, olga)
    assert len(captured) == 1


def test_an_approval_is_given_and_its_agent_hears_of_it(
    olgas: Client, acme: Company, ada: Agent
) -> None:
    asked = ask(acme, ada, title="Move the launch", summary="A week earlier.", cost="40 dollars")
    page = text(olgas.get(f"/c/ACM/inbox/?item={asked.id}"))
    assert "A week earlier." in page
    assert "40 dollars" in page
    said = text(
        olgas.post(
            f"/c/ACM/approvals/{asked.id}/decide",
            {"outcome": "rejected", "note": "Too early"},
            follow=True,
        )
    )
    assert "Rejected." in said
    assert "Nothing needs you" in said
    run = HeartbeatRun.objects.get(agent=ada)
    assert run.reason == "approval_rejected"
    decided = text(olgas.get("/c/ACM/inbox/?show=decided"))
    assert "Move the launch" in decided
    assert "Too early" in decided


def test_a_decided_approval_is_not_decided_again(olgas: Client, acme: Company, ada: Agent) -> None:
    asked = ask(acme, ada, title="Move the launch")
    olgas.post(f"/c/ACM/approvals/{asked.id}/decide", {"outcome": "approved"})
    page = text(
        olgas.post(f"/c/ACM/approvals/{asked.id}/decide", {"outcome": "rejected"}, follow=True)
    )
    assert "This approval was decided." in page
    asked.refresh_from_db()
    assert asked.status == "approved"


def test_a_hundred_decisions_leave_the_inbox_and_are_paged(
    olgas: Client, olga: User, acme: Company, ada: Agent, now: datetime
) -> None:
    Approval.objects.bulk_create(
        Approval(
            company=acme,
            payload={"title": f"Wish {n}"},
            status="approved",
            decided_by=olga,
            decided_at=now - timedelta(seconds=n),
            created_at=now,
            updated_at=now,
        )
        for n in range(100)
    )
    assert "Nothing needs you" in text(olgas.get("/c/ACM/inbox/"))
    first = text(olgas.get("/c/ACM/inbox/?show=decided"))
    older = re.search(r'rel="next" href="([^"]+)"', first)
    assert older
    second = text(olgas.get("/c/ACM/inbox/" + older[1].replace("&amp;", "&")))
    titles = set(re.findall(r"Wish \d+", first)) | set(re.findall(r"Wish \d+", second))
    assert len(titles) == 100


def test_work_is_accepted_and_the_acceptance_is_taken_back(
    olgas: Client, acme: Company, ada: Agent
) -> None:
    handed = factories.issue(acme, "Polish it", status="in_review", assignee=ada)
    page = text(
        olgas.post(f"/c/ACM/issues/{handed.identifier}/review", {"outcome": "done"}, follow=True)
    )
    handed.refresh_from_db()
    assert handed.status == "done"
    undo(olgas, page)
    handed.refresh_from_db()
    assert handed.status == "in_review"
    assert handed.completed_at is None


def test_work_is_sent_back_with_a_note_that_wakes(olgas: Client, acme: Company, ada: Agent) -> None:
    handed = factories.issue(acme, "Polish it", status="in_review", assignee=ada)
    olgas.post(f"/c/ACM/issues/{handed.identifier}/review", {"outcome": "back", "note": "Rounder."})
    handed.refresh_from_db()
    assert handed.status == "todo"
    assert handed.comments.get().body == "Rounder."
    assert HeartbeatRun.objects.filter(agent=ada, issue=handed, status="queued").count() == 1


def test_what_is_snoozed_sleeps_and_is_woken_by_something_new(
    olgas: Client, olga: User, acme: Company, ada: Agent, now: datetime
) -> None:
    handed = factories.issue(acme, "Polish it", status="in_review", assignee=ada, now=now)
    page = text(olgas.post(f"/c/ACM/inbox/{handed.id}/aside", {"snooze": "4h"}, follow=True))
    assert "It sleeps: for four hours." in page
    assert "Polish it" not in page
    assert "Polish it" in text(olgas.get("/c/ACM/inbox/?show=aside"))
    later = now + timedelta(hours=5)
    assert len(desk.of(company_id=acme.id, user=olga, now=later).waiting) == 1
    Issue.objects.filter(id=handed.id).update(updated_at=now + timedelta(minutes=5))
    assert len(desk.of(company_id=acme.id, user=olga, now=now + timedelta(minutes=6)).waiting) == 1


def test_putting_aside_is_ones_own_and_can_be_undone(
    olgas: Client, veras: Client, acme: Company, ada: Agent
) -> None:
    asked = ask(acme, ada, title="Move the launch")
    page = text(veras.post(f"/c/ACM/inbox/{asked.id}/aside", follow=True))
    assert "Move the launch" not in page
    assert "Move the launch" in text(olgas.get("/c/ACM/inbox/"))
    undo(veras, page)
    assert "Move the launch" in text(veras.get("/c/ACM/inbox/"))
    assert not InboxMark.objects.exists()


def test_a_viewer_reads_why_there_are_no_buttons(veras: Client, acme: Company, ada: Agent) -> None:
    asked = ask(acme, ada, title="Move the launch")
    page = text(veras.get("/c/ACM/inbox/"))
    assert "Your role is viewer" in page
    assert f"/approvals/{asked.id}/decide" not in page
    answer = veras.post(f"/c/ACM/approvals/{asked.id}/decide", {"outcome": "approved"})
    assert answer.status_code == 403


def test_a_stranger_finds_nothing(
    oscars: Client, globex: Company, acme: Company, ada: Agent
) -> None:
    asked = ask(acme, ada, title="Move the launch")
    assert oscars.get("/c/ACM/inbox/").status_code == 404
    for path in (f"approvals/{asked.id}/decide", f"inbox/{asked.id}/aside"):
        answer = oscars.post(f"/c/GLO/{path}", {"outcome": "approved"})
        assert answer.status_code == 404
    asked.refresh_from_db()
    assert asked.status == "pending"


def test_secrets_of_a_hire_are_not_shown(olgas: Client, acme: Company, ada: Agent) -> None:
    ask(acme, ada, title="Hire", adapterConfig={"env": {"TOKEN": "hunter2"}})
    page = text(olgas.get("/c/ACM/inbox/"))
    assert "hunter2" not in page
