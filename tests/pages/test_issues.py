"""The board's pages: filters, pages by key, forms, and what hostile text does (nothing)."""

from __future__ import annotations

import re
from datetime import datetime

from django.test import Client

from agents.models import Agent, HeartbeatRun
from companies.activity import Actor
from companies.format import avatar
from companies.models import Company, Goal, Project, User
from issues import marks, work
from issues.models import Comment, Interaction, Issue
from tests import factories
from tests.pages.conftest import Scene

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


def text(answer: object) -> str:
    return answer.content.decode()  # type: ignore[attr-defined, no-any-return]


def shown(page: str) -> list[str]:
    return re.findall(r'id="issue-(ACM-\d+)"', page)


def test_the_list_shows_what_is_open(olgas: Client, acme: Company) -> None:
    factories.issue(acme, "Open one")
    factories.issue(acme, "Finished one", status="done")
    page = text(olgas.get("/c/ACM/issues/"))
    assert shown(page) == ["ACM-1"]


def test_filters_are_in_the_address(olgas: Client, acme: Company, ada: Agent, olga: User) -> None:
    factories.issue(acme, "For Ada", assignee=ada)
    factories.issue(acme, "For Olga", assignee=olga, priority=0)
    factories.issue(acme, "For nobody")
    assert shown(text(olgas.get(f"/c/ACM/issues/?assignee={ada.id}"))) == ["ACM-1"]
    assert shown(text(olgas.get("/c/ACM/issues/?assignee=me"))) == ["ACM-2"]
    assert shown(text(olgas.get("/c/ACM/issues/?assignee=nobody"))) == ["ACM-3"]
    assert shown(text(olgas.get("/c/ACM/issues/?priority=critical"))) == ["ACM-2"]
    assert shown(text(olgas.get("/c/ACM/issues/?q=nobody"))) == ["ACM-3"]
    assert shown(text(olgas.get("/c/ACM/issues/?q=acm-1"))) == ["ACM-1"]


def test_nonsense_in_the_address_is_no_fault_of_ours(olgas: Client, acme: Company) -> None:
    factories.issue(acme)
    for query in (
        "status=%00&sort=' OR 1=1&group=<b>",
        "assignee=' OR 1=1",
        "project=nonsense",
        "after=%%%",
        "after=WyJ4IiwieCIsIngiXQ",
        "sort=updated&after=WzEsMSwiMDAwMDAwMDAtMDAwMC0wMDAwLTAwMDAtMDAwMDAwMDAwMDAwIl0",
        "group=assignee&after=WzEsMSwiMDAwMDAwMDAtMDAwMC0wMDAwLTAwMDAtMDAwMDAwMDAwMDAwIl0",
        "q=%00%ff\\",
    ):
        assert olgas.get(f"/c/ACM/issues/?{query}").status_code == 200, query


def pages(browser: Client, query: str) -> list[str]:
    """Identifiers of the whole list, following "next" to the end."""
    found: list[str] = []
    address = f"/c/ACM/issues/{query}"
    for _ in range(10):
        page = text(browser.get(address))
        found += shown(page)
        onward = re.search(r'href="([^"]+)" rel="next"', page)
        if onward is None:
            return found
        address = onward[1].replace("&amp;", "&")
    raise AssertionError("the pages do not end")


def test_pages_by_key_show_every_issue_once_in_every_order(olgas: Client, acme: Company) -> None:
    for n in range(120):
        factories.issue(acme, f"Issue {n}", priority=n % 4, status=("todo", "backlog")[n % 2])
    for query in (
        "?",
        "?sort=updated",
        "?sort=created&group=none",
        "?group=priority",
        "?group=assignee&sort=updated",
    ):
        found = pages(olgas, query)
        assert len(found) == 120, query
        assert len(set(found)) == 120, query


def test_a_row_says_why_nobody_works_on_it(olgas: Client, acme: Company, ada: Agent) -> None:
    factories.issue(acme, assignee=ada)
    factories.hold(ada)
    assert "Ada is paused" in text(olgas.get("/c/ACM/issues/"))


def test_the_board_counts_each_column_and_shows_ten_cards(olgas: Client, acme: Company) -> None:
    factories.issues(acme, 14)
    page = text(olgas.get("/c/ACM/issues/board"))
    assert len(re.findall(r'id="card-ACM-\d+"', page)) == 10
    assert "14 in all" in page


def test_a_part_of_the_list_is_that_part_alone(olgas: Client, acme: Company) -> None:
    factories.issue(acme)
    headers = {"HX-Request": "true", "HX-Target": "issue-list"}
    page = text(olgas.get("/c/ACM/issues/", headers=headers))
    assert page.lstrip().startswith('<div id="issue-list"')


def test_a_new_issue_goes_to_its_agent(olgas: Client, acme: Company, ada: Agent) -> None:
    project, goal = factories.project(acme), factories.goal(acme)
    answer = olgas.post(
        "/c/ACM/issues/new",
        {
            "title": "Forge",
            "description": "Hot.",
            "assignee": f"agent:{ada.id}",
            "priority": "high",
            "project": str(project.id),
            "goal": str(goal.id),
            "status": "todo",
        },
    )
    issue = Issue.objects.get()
    assert answer["Location"] == f"/c/ACM/issues/{issue.identifier}"
    assert (issue.assignee_agent, issue.project, issue.goal) == (ada, project, goal)
    assert issue.get_priority_display() == "high"
    assert HeartbeatRun.objects.filter(agent=ada, issue=issue, status="queued").exists()


def test_an_issue_without_a_title_is_refused_at_its_field_and_keeps_the_text(
    olgas: Client, acme: Company
) -> None:
    answer = olgas.post(
        "/c/ACM/issues/new",
        {"title": "", "description": "Long thoughts", "priority": "medium", "status": "todo"},
    )
    assert answer.status_code == 422
    assert 'id="id_title_error"' in text(answer)
    assert "Long thoughts" in text(answer)
    assert not Issue.objects.exists()


def test_things_of_another_company_cannot_be_chosen(
    olgas: Client, acme: Company, globex: Company, spy: Agent
) -> None:
    theirs: list[tuple[str, Agent | Project | Goal]] = [
        ("assignee", spy),
        ("project", factories.project(globex)),
        ("goal", factories.goal(globex)),
    ]
    for field, thing in theirs:
        value = f"agent:{thing.id}" if field == "assignee" else str(thing.id)
        form = {"title": "Forge", "priority": "medium", "status": "todo", field: value}
        assert olgas.post("/c/ACM/issues/new", form).status_code == 422, field
    assert not Issue.objects.exists()


def test_properties_change_one_at_a_time(olgas: Client, acme: Company, issue: Issue) -> None:
    address = f"/c/ACM/issues/{issue.identifier}"
    assert olgas.post(f"{address}/edit", {"priority": "critical"})["Location"] == address
    olgas.post(f"{address}/edit", {"assignee": ""})
    issue.refresh_from_db()
    assert issue.priority == 0
    assert issue.assignee_agent is None


def test_without_scripts_all_properties_are_saved_at_once(
    olgas: Client, issue: Issue, ada: Agent
) -> None:
    address = f"/c/ACM/issues/{issue.identifier}"
    form = {
        "status": "todo",
        "priority": "high",
        "assignee": f"agent:{ada.id}",
        "project": "",
        "goal": "",
    }
    assert olgas.post(f"{address}/edit", form)["Location"] == address
    issue.refresh_from_db()
    assert (issue.status, issue.get_priority_display()) == ("todo", "high")
    assert issue.assignee_agent == ada


def test_a_review_is_closed_from_the_home_and_leads_back_there(
    olgas: Client, acme: Company, ada: Agent
) -> None:
    issue = factories.issue(acme, status="in_review", assignee=ada)
    form = {"status": "done", "next": "/c/ACM/"}
    answer = olgas.post(f"/c/ACM/issues/{issue.identifier}/edit", form)
    assert answer["Location"] == "/c/ACM/"
    issue.refresh_from_db()
    assert issue.status == "done"


def test_a_property_changed_on_the_page_swaps_the_properties(olgas: Client, issue: Issue) -> None:
    headers = {"HX-Request": "true", "HX-Target": "properties"}
    address = f"/c/ACM/issues/{issue.identifier}/edit"
    changed = olgas.post(address, {"priority": "low"}, headers=headers)
    assert text(changed).lstrip().startswith('<div id="properties"')
    refused = olgas.post(address, {"status": "in_review"}, headers=headers)
    assert refused.status_code == 200
    assert "cannot become in review" in refused["HX-Trigger"]


def test_properties_take_nothing_from_another_company(
    olgas: Client, issue: Issue, globex: Company, spy: Agent
) -> None:
    address = f"/c/ACM/issues/{issue.identifier}/edit"
    project = factories.project(globex)
    for form in (
        {"assignee": f"agent:{spy.id}"},
        {"project": str(project.id)},
        {"assignee": "agent:nonsense"},
        {"goal": "nonsense"},
    ):
        assert olgas.post(address, form).status_code in (302, 404), form
    before = issue.version
    issue.refresh_from_db()
    assert issue.version == before


def test_an_impossible_step_is_explained_and_changes_nothing(olgas: Client, issue: Issue) -> None:
    address = f"/c/ACM/issues/{issue.identifier}"
    answer = olgas.post(f"{address}/edit", {"status": "in_review"}, follow=True)
    assert "cannot become in review" in text(answer)
    issue.refresh_from_db()
    assert issue.status == "todo"


def test_a_stale_edit_does_not_overwrite(olgas: Client, issue: Issue) -> None:
    address = f"/c/ACM/issues/{issue.identifier}"
    olgas.post(f"{address}/edit", {"title": "First", "version": issue.version})
    answer = olgas.post(f"{address}/edit", {"title": "Second", "version": 1}, follow=True)
    assert "Somebody else has changed this issue" in text(answer)
    issue.refresh_from_db()
    assert issue.title == "First"


def test_a_comment_wakes_only_when_asked_to(olgas: Client, issue: Issue, ada: Agent) -> None:
    address = f"/c/ACM/issues/{issue.identifier}/comments"
    olgas.post(address, {"body": "For the record.", "wake": "0"})
    assert not HeartbeatRun.objects.exists()
    olgas.post(address, {"body": "Please hurry.", "wake": "1"})
    assert HeartbeatRun.objects.filter(agent=ada, status="queued").count() == 1


def test_a_refused_comment_keeps_its_text(olgas: Client, issue: Issue) -> None:
    address = f"/c/ACM/issues/{issue.identifier}/comments"
    answer = olgas.post(address, {"body": "x" * 200_000, "wake": "0"})
    assert answer.status_code == 422
    assert "x" * 1000 in text(answer)
    assert not Comment.objects.exists()


def test_a_question_is_answered_by_a_button(olgas: Client, scene: Scene) -> None:
    address = f"/c/ACM/issues/{scene.asking.identifier}"
    assert "Round or square?" in text(olgas.get(address))
    olgas.post(f"{address}/questions/{scene.question}", {"option": "Round"})
    asked = Interaction.objects.get(id=scene.question)
    assert asked.status == "answered"
    assert asked.response == {"answer": "Round"}


def test_a_failed_run_shows_what_it_means_and_how_to_go_on(olgas: Client, scene: Scene) -> None:
    page = text(olgas.get(f"/c/ACM/issues/{scene.failed.identifier}"))
    assert "rate_limited" in page
    assert f"/runs/{scene.failed_run.id}/retry" in page


def test_hostile_text_stays_text(olgas: Client, acme: Company, ada: Agent) -> None:
    issue = factories.issue(acme, EVIL, assignee=ada, description=EVIL)
    factories.comment(
        issue, f"{EVIL} [x](javascript:alert(1)) ![i](http://e.example/i.png)", author=ada
    )
    factories.interaction(issue, EVIL, asked_by=ada)
    for path in (
        "",
        "panels/needs",
        "issues/",
        "issues/board",
        f"issues/{issue.identifier}",
        "agents/",
        f"issues/?q={EVIL}",
    ):
        page = text(olgas.get(f"/c/ACM/{path}"))
        assert "<script>alert" not in page, path
        assert "<img" not in page, path
        assert 'href="javascript' not in page, path


def test_a_closed_issue_is_archived_and_comes_back(olgas: Client, acme: Company) -> None:
    issue = factories.issue(acme, status="done")
    address = f"/c/ACM/issues/{issue.identifier}/archive"
    olgas.post(address)
    assert shown(text(olgas.get("/c/ACM/issues/?status=all"))) == []
    olgas.post(address, {"undo": "1"})
    assert shown(text(olgas.get("/c/ACM/issues/?status=all"))) == ["ACM-1"]


def test_the_thread_says_who_stopped_a_run(
    olgas: Client, olga: User, acme: Company, ada: Agent, now: datetime
) -> None:
    issue = factories.issue(acme, "Forge", status="in_progress", assignee=ada)
    run = factories.running(ada, issue)
    work.checkout(issue=issue, agent=ada, run=run)
    assert olgas.post(f"/c/ACM/runs/{run.id}/cancel").status_code == 302
    run.refresh_from_db()
    work.report(run=run, status="cancelled", code="cancelled", message=run.cancel_reason, now=now)
    thread = olgas.get(f"/c/ACM/issues/{issue.identifier}").content.decode().split('id="thread"')[1]
    words = " ".join(re.sub(r"<[^>]*>", " ", thread).split())
    assert f"moved this to To do , because the run was ended: Stopped by {olga}" in words


def test_a_person_has_the_same_face_on_every_page(olgas: Client, olga: User, acme: Company) -> None:
    issue = factories.issue(acme, "Forge", assignee=olga)
    olgas.post(f"/c/ACM/issues/{issue.identifier}/comments", {"body": "Soon."})
    for path in ("issues/", f"issues/{issue.identifier}", "settings/", "activity/"):
        page = text(olgas.get(f"/c/ACM/{path}"))
        faces = re.findall(r'<span class="avatar [^>]*"user"[^>]*>[^<]*</span>', page)
        assert set(faces) == {avatar("Olga", "user")}, path


def test_labels_are_given_and_taken_on_the_page_of_an_issue(
    olgas: Client, acme: Company, olga: User
) -> None:
    issue = factories.issue(acme, "Forge")
    address = f"/c/ACM/issues/{issue.identifier}"
    for name in ("Urgent", "from a customer", "urgent"):  # the last one is the first again
        assert olgas.post(f"{address}/labels", {"add": name}).status_code == 302
    page = text(olgas.get(address))
    assert 'aria-label="Remove the label Urgent"' in page
    assert "set the labels to" in page
    assert "Urgent, from a customer" in page
    urgent, other = marks.labels_of(issue)[::-1]
    assert (urgent.name, other.name) == ("Urgent", "from a customer")
    olgas.post(f"{address}/labels", {"remove": str(urgent.id)})
    assert [one.name for one in marks.labels_of(issue)] == ["from a customer"]
    # It is still offered, and what has gone meanwhile is taken off by nobody twice.
    assert '<option value="Urgent">' in text(olgas.get(address))
    assert olgas.post(f"{address}/labels", {"remove": str(urgent.id)}).status_code == 302


def test_a_label_that_cannot_be_given_says_why(olgas: Client, acme: Company) -> None:
    issue = factories.issue(acme, "Forge")
    address = f"/c/ACM/issues/{issue.identifier}/labels"
    swap = {"HX-Request": "true", "HX-Target": "properties"}
    for sent in ({"add": " "}, {"add": "x" * 61}, {"remove": "nonsense"}, {}):
        answer = olgas.post(address, sent, headers=swap)
        assert answer.status_code == 200, sent
        assert "bad" in answer["HX-Trigger"], sent
    assert marks.labels_of(issue) == []


def test_labels_of_another_company_and_hands_of_viewers_are_kept_out(
    olgas: Client, veras: Client, oscars: Client, acme: Company, globex: Company, oscar: User
) -> None:
    issue, theirs = factories.issue(acme, "Forge"), factories.issue(globex, "Other")
    actor = Actor("user", oscar.id, "Oscar")
    foreign = marks.attach(issue=theirs, name="Theirs", actor=actor)
    address = f"/c/ACM/issues/{issue.identifier}"
    olgas.post(f"{address}/labels", {"remove": str(foreign.id)})
    assert marks.labels_of(theirs) == [foreign]
    assert "Theirs" not in text(olgas.get(address))
    assert veras.post(f"{address}/labels", {"add": "Mine"}).status_code == 403
    assert oscars.post(f"{address}/labels", {"add": "Mine"}).status_code == 404
    assert (
        olgas.post(f"/c/ACM/issues/{theirs.identifier}/labels", {"add": "Mine"}).status_code == 404
    )
    assert "Add a label" not in text(veras.get(address))


def test_a_run_is_stopped_where_its_issue_is_read(
    olgas: Client, veras: Client, scene: Scene
) -> None:
    address = f"/c/ACM/issues/{scene.running.identifier}"
    stop = f'action="/c/ACM/runs/{scene.live_run.id}/cancel"'
    # Beside the thread where there is room, in it on a phone.
    assert text(olgas.get(address)).count(stop) == 2
    assert stop not in text(veras.get(address))
    olgas.post(f"/c/ACM/runs/{scene.live_run.id}/cancel", {"next": address})
    scene.live_run.refresh_from_db()
    assert scene.live_run.cancel_requested_at is not None
