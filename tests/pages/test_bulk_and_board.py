"""Many issues at once, cards that move, lists under a name; and the way back from each."""

from __future__ import annotations

import re
from html import unescape

from django.test import Client

from agents.models import Agent, HeartbeatRun
from companies.models import Activity, Company
from issues.models import Issue, IssueLabel, SavedView
from tests import factories


def text(answer: object) -> str:
    return answer.content.decode()  # type: ignore[attr-defined, no-any-return]


def undo(browser: Client, page: str) -> None:
    """Press the button that the message on this page offers."""
    form = re.search(
        r'<div class="toast".*?<form method="post" action="([^"]+)">(.*?)</form>', page
    )
    assert form, page
    fields = dict(re.findall(r'name="([^"]+)" value="([^"]*)"', form[2]))
    browser.post(form[1], {name: unescape(value) for name, value in fields.items()})


def test_chosen_issues_change_together_and_come_back_together(
    olgas: Client, acme: Company, ada: Agent
) -> None:
    first, second = factories.issues(acme, 2)
    factories.issues(acme, 1)
    chosen = {"issue": [first.identifier, second.identifier]}
    page = text(
        olgas.post(
            "/c/ACM/issues/bulk",
            chosen | {"status": "backlog", "priority": "high", "label": "Spring"},
            follow=True,
        )
    )
    assert "Changed 2 issues." in page
    first.refresh_from_db()
    assert (first.status, first.get_priority_display()) == ("backlog", "high")
    assert IssueLabel.objects.filter(label__name="Spring").count() == 2
    assert Issue.objects.filter(status="todo").count() == 1

    undo(olgas, page)
    first.refresh_from_db()
    assert (first.status, first.get_priority_display()) == ("todo", "medium")
    assert not IssueLabel.objects.exists()
    assert Activity.objects.filter(action="issue.restored").count() == 2


def test_assigning_many_wakes_their_agent_once_each(
    olgas: Client, acme: Company, ada: Agent
) -> None:
    chosen = [issue.identifier for issue in factories.issues(acme, 3)]
    olgas.post("/c/ACM/issues/bulk", {"issue": chosen, "assignee": f"agent:{ada.id}"})
    assert HeartbeatRun.objects.filter(agent=ada, status="queued").count() == 3


def test_one_that_refuses_does_not_hold_up_the_others(olgas: Client, acme: Company) -> None:
    closed = factories.issue(acme, status="done")
    opened = factories.issue(acme)
    page = text(
        olgas.post(
            "/c/ACM/issues/bulk",
            {"issue": [closed.identifier, opened.identifier], "archive": "1"},
            follow=True,
        )
    )
    assert "Changed 1 issue." in page
    assert f"{opened.identifier}: Close the issue before you archive it." in page
    closed.refresh_from_db()
    assert closed.archived_at
    undo(olgas, page)
    closed.refresh_from_db()
    assert closed.archived_at is None


def test_undo_leaves_alone_what_somebody_touched_since(
    olgas: Client, acme: Company, issue: Issue
) -> None:
    page = text(
        olgas.post(
            "/c/ACM/issues/bulk", {"issue": issue.identifier, "priority": "low"}, follow=True
        )
    )
    olgas.post(f"/c/ACM/issues/{issue.identifier}/edit", {"title": "Another title"})
    undo(olgas, page)
    issue.refresh_from_db()
    assert issue.get_priority_display() == "low"
    assert "Somebody else has changed it" in text(olgas.get("/c/ACM/issues/"))


def test_a_token_of_undo_is_worth_nothing_when_forged(olgas: Client, issue: Issue) -> None:
    page = text(olgas.post("/c/ACM/issues/undo", {"token": "W10:forged"}, follow=True))
    assert "too late to undo" in page


def test_nothing_of_the_neighbours_is_changed(
    olgas: Client, acme: Company, globex: Company
) -> None:
    foreign = factories.issue(globex)
    page = text(
        olgas.post(
            "/c/ACM/issues/bulk", {"issue": foreign.identifier, "status": "backlog"}, follow=True
        )
    )
    assert "Choose at least one issue." in page
    foreign.refresh_from_db()
    assert foreign.status == "todo"


def test_viewers_have_no_bulk_bar_and_no_cards_to_move(veras: Client, issue: Issue) -> None:
    assert 'id="bulk"' not in text(veras.get("/c/ACM/issues/"))
    assert "draggable" not in text(veras.get("/c/ACM/issues/board"))
    for path in ("bulk", "move", "undo"):
        assert veras.post(f"/c/ACM/issues/{path}", {"issue": issue.identifier}).status_code == 403


def move(browser: Client, issue: Issue, to: str, seen: str = "", **more: str) -> str:
    answer = browser.post(
        "/c/ACM/issues/move",
        {"issue": issue.identifier, "from": seen or issue.status, "to": to, **more},
        headers={"HX-Request": "true", "HX-Target": "issue-board"},
    )
    assert answer.status_code == 200
    return answer["HX-Trigger"] + text(answer)


def test_a_card_moves_by_the_boards_verb(olgas: Client, issue: Issue) -> None:
    said = move(olgas, issue, "backlog")
    assert f"{issue.identifier} is backlog." in said
    assert '"undo"' in said
    issue.refresh_from_db()
    assert issue.status == "backlog"
    assert Activity.objects.filter(action="issue.updated", entity_id=issue.id).count() == 1


def test_a_card_that_somebody_else_has_moved_says_so(olgas: Client, issue: Issue) -> None:
    said = move(olgas, issue, "cancelled", seen="backlog")
    assert "somebody else has moved it to To do in the meantime" in said
    issue.refresh_from_db()
    assert issue.status == "todo"


def test_a_card_becomes_blocked_with_a_reason_and_says_what_lacks_without(
    olgas: Client, issue: Issue
) -> None:
    assert "Name the issue that blocks" in move(olgas, issue, "blocked")
    move(olgas, issue, "blocked", note="Olga must order iron")
    issue.refresh_from_db()
    assert (issue.status, issue.blocked_reason) == ("blocked", "Olga must order iron")


def test_a_view_is_saved_shared_removed_and_brought_back(
    olgas: Client, veras: Client, acme: Company
) -> None:
    olgas.post(
        "/c/ACM/issues/views/save",
        {"name": "Urgent", "layout": "list", "query": "?priority=high&evil=1", "shared": "1"},
    )
    view = SavedView.objects.get()
    assert view.query == "priority=high"
    assert 'href="/c/ACM/issues/?priority=high"' in text(veras.get("/c/ACM/issues/board"))
    assert veras.post(f"/c/ACM/issues/views/{view.id}/remove").status_code == 404
    page = text(olgas.post(f"/c/ACM/issues/views/{view.id}/remove", follow=True))
    assert not SavedView.objects.exists()
    undo(olgas, page)
    assert SavedView.objects.get().is_shared


def test_a_viewers_view_is_their_own(veras: Client, olgas: Client, acme: Company) -> None:
    veras.post("/c/ACM/issues/views/save", {"name": "Mine", "layout": "board", "shared": "1"})
    assert not SavedView.objects.get().is_shared
    assert "Mine" not in text(olgas.get("/c/ACM/issues/"))
