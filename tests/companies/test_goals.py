"""Goals and projects."""

from __future__ import annotations

from datetime import date

import pytest

from agents.models import Agent
from companies import goals
from companies.activity import Actor
from companies.errors import Invalid, NotFound
from companies.models import Activity, Company, Goal, User
from issues.models import Issue
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def by_olga(olga: User) -> Actor:
    return Actor("user", olga.id, "Olga")


def test_a_goal_below_another(acme: Company, ada: Agent, by_olga: Actor) -> None:
    top = goals.create_goal(company=acme, actor=by_olga, title="Grow", level="company")
    low = goals.create_goal(
        company=acme, actor=by_olga, title="Sell", parent=top, owner_agent=ada, status="active"
    )
    assert (low.parent, low.owner_agent, low.status) == (top, ada, "active")
    assert Activity.objects.filter(action="goal.created").count() == 2


def test_goals_do_not_run_in_circles(acme: Company, by_olga: Actor) -> None:
    top = factories.goal(acme)
    low = factories.goal(acme, parent=factories.goal(acme, parent=top))
    for parent in (low, top):
        with pytest.raises(Invalid) as refusal:
            goals.update_goal(goal=top, changes={"parent": parent}, actor=by_olga)
        assert refusal.value.field == "parent"


def test_goals_nest_only_so_deep(acme: Company, by_olga: Actor) -> None:
    parent = None
    for _ in range(goals.MAX_DEPTH + 1):
        parent = factories.goal(acme, parent=parent)
    with pytest.raises(Invalid):
        goals.update_goal(goal=factories.goal(acme), changes={"parent": parent}, actor=by_olga)


def test_what_hangs_on_a_deleted_goal_stays(acme: Company, issue: Issue, by_olga: Actor) -> None:
    goal = factories.goal(acme)
    Issue.objects.filter(id=issue.id).update(goal=goal)
    goals.delete_goal(goal=goal, actor=by_olga)
    issue.refresh_from_db()
    assert issue.goal is None
    assert not Goal.objects.exists()


def test_a_project_with_everything(acme: Company, ada: Agent, by_olga: Actor) -> None:
    project = goals.create_project(
        company=acme,
        actor=by_olga,
        name="Anvils",
        goal=factories.goal(acme),
        lead_agent=ada,
        workspace="/srv/anvils",
        target_date="2026-12-31",
        status="in_progress",
    )
    assert (project.target_date, project.lead_agent) == (date(2026, 12, 31), ada)


def test_a_change_is_recorded_with_before_and_after(acme: Company, by_olga: Actor) -> None:
    project = factories.project(acme)
    goals.update_project(project=project, changes={"status": "completed"}, actor=by_olga)
    details = Activity.objects.get(action="project.updated").details
    assert details == {"before": {"status": "backlog"}, "after": {"status": "completed"}}


def test_archiving_and_back(acme: Company, by_olga: Actor) -> None:
    project = goals.archive_project(project=factories.project(acme), actor=by_olga)
    assert project.archived_at is not None
    back = goals.archive_project(project=project, archived=False, actor=by_olga)
    assert back.archived_at is None


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "N", "status": "nonsense"}, "status"),
        ({"name": "N", "status": ["done"]}, "status"),
        ({"name": "N", "workspace": "relative"}, "workspace"),
        ({"name": "N", "workspace": "/srv/../etc"}, "workspace"),
        ({"name": "N", "workspace": "/a\x00"}, "workspace"),
        ({"name": "N", "target_date": "soon"}, "target_date"),
        ({"name": "N", "target_date": 7}, "target_date"),
    ],
)
def test_a_bad_project_names_its_field(
    fields: dict, field: str, acme: Company, by_olga: Actor
) -> None:
    with pytest.raises(Invalid) as refusal:
        goals.create_project(company=acme, actor=by_olga, **fields)
    assert refusal.value.field == field


def test_an_unknown_field_is_refused(acme: Company, by_olga: Actor) -> None:
    with pytest.raises(Invalid):
        goals.update_project(
            project=factories.project(acme), changes={"company": acme}, actor=by_olga
        )


def test_what_is_another_companys_does_not_exist(
    acme: Company, globex: Company, spy: Agent, by_olga: Actor
) -> None:
    with pytest.raises(NotFound):
        goals.create_goal(company=acme, actor=by_olga, title="T", parent=factories.goal(globex))
    with pytest.raises(NotFound):
        goals.create_project(company=acme, actor=by_olga, name="N", lead_agent=spy)
