"""Who may see which page."""

from __future__ import annotations

import pytest
from django.test import Client

from companies.models import Company
from tests.pages.conftest import Scene


def addresses(scene: Scene) -> list[str]:
    """Every page that a viewer may read."""
    return [
        "",
        "panels/glance",
        "panels/running",
        "panels/needs",
        "panels/waiting",
        "panels/money",
        "panels/recent",
        "issues/",
        "issues/?status=all&group=assignee&sort=updated&q=anvil",
        "issues/?group=none&sort=created",
        "issues/?group=priority&assignee=nobody",
        "issues/board",
        f"issues/{scene.running.identifier}",
        f"issues/{scene.asking.identifier}",
        f"issues/{scene.failed.identifier}",
        f"issues/{scene.failed.identifier}/why",
        "agents/",
        "agents/?view=org",
        "agents/ada/",
        "agents/ada/runs",
        "agents/ada/issues",
        "agents/ada/configuration",
        f"runs/{scene.live_run.id}",
        f"runs/{scene.live_run.id}/step",
        f"runs/{scene.failed_run.id}",
        f"runs/{scene.failed_run.id}?view=raw",
        f"runs/{scene.failed_run.id}/transcript",
        f"runs/{scene.failed_run.id}/log.txt",
        "costs/",
        "costs/?by=model",
        "costs/prices",
        "costs/table.csv?by=provider",
        "costs/?by=goal",
        "costs/?by=billing_code",
        "costs/kept",
        "costs/kept.csv",
        "costs/prices?q=gpt",
        "costs/prices.csv",
        "costs/bill",
        "costs/estimate",
        f"costs/estimate?issue={scene.running.identifier}",
        "costs/archive",
        "activity/",
        "activity/?actor=user&noun=issue",
        "goals/",
        "settings/",
        "settings/connections/",
    ]


def test_the_owner_sees_every_page(olgas: Client, scene: Scene) -> None:
    answers = {path: olgas.get(f"/c/ACM/{path}").status_code for path in addresses(scene)}
    assert set(answers.values()) == {200}, answers


def test_a_viewer_sees_every_page(veras: Client, scene: Scene) -> None:
    answers = {path: veras.get(f"/c/ACM/{path}").status_code for path in addresses(scene)}
    assert set(answers.values()) == {200}, answers


def test_a_stranger_finds_nothing(oscars: Client, scene: Scene) -> None:
    answers = {path: oscars.get(f"/c/ACM/{path}").status_code for path in addresses(scene)}
    assert set(answers.values()) == {404}, answers


def test_things_of_another_company_are_not_found_under_ones_own(
    oscars: Client, scene: Scene
) -> None:
    for path in (
        f"issues/{scene.running.identifier}",
        "agents/ada/",
        f"runs/{scene.live_run.id}",
        f"runs/{scene.live_run.id}/log.txt",
    ):
        assert oscars.get(f"/c/GLO/{path}").status_code == 404, path


def test_a_company_that_does_not_exist_is_not_found(olgas: Client) -> None:
    assert olgas.get("/c/NOPE/").status_code == 404


def test_nobody_in_particular_is_sent_to_sign_in_and_back(client: Client, scene: Scene) -> None:
    for path in addresses(scene):
        answer = client.get(f"/c/ACM/{path}")
        assert answer.status_code == 302
        assert answer["Location"].startswith("/sign-in?next=/c/ACM/"), path


def test_a_part_of_a_page_asks_an_expired_session_to_sign_in(client: Client, acme: Company) -> None:
    answer = client.get("/c/ACM/panels/running", headers={"HX-Request": "true"})
    assert answer.status_code == 401
    assert answer["HX-Redirect"] == "/sign-in"


@pytest.mark.parametrize(
    "path",
    [
        "issues/new",
        "agents/new",
        "agents/ada/keys",
    ],
)
def test_a_viewer_is_told_what_the_role_may_not(veras: Client, scene: Scene, path: str) -> None:
    answer = veras.get(f"/c/ACM/{path}")
    assert answer.status_code == 403
    assert "Your role here is viewer" in answer.content.decode()


def acts(scene: Scene) -> list[str]:
    """Every address that changes something."""
    issue, run = scene.failed.identifier, scene.live_run.id
    return [
        "issues/new",
        f"issues/{issue}/edit",
        f"issues/{issue}/comments",
        f"issues/{issue}/wake",
        f"issues/{issue}/archive",
        f"issues/{scene.asking.identifier}/questions/{scene.question}",
        "agents/new",
        "agents/test",
        "agents/ada/pause",
        "agents/ada/resume",
        "agents/ada/wake",
        "agents/ada/clear-error",
        "agents/ada/terminate",
        "agents/ada/configuration",
        "agents/ada/keys",
        f"runs/{run}/cancel",
        f"runs/{run}/retry",
        "costs/budgets",
        "costs/prices/set",
        "goals/save",
        "goals/projects",
        "settings/company",
        "settings/state",
        "settings/members",
        "settings/secrets",
        "settings/secrets/forget",
    ]


def test_a_viewer_cannot_act(veras: Client, scene: Scene) -> None:
    answers = {path: veras.post(f"/c/ACM/{path}").status_code for path in acts(scene)}
    assert set(answers.values()) == {403}, answers


def test_a_stranger_cannot_act(oscars: Client, scene: Scene) -> None:
    answers = {path: oscars.post(f"/c/ACM/{path}").status_code for path in acts(scene)}
    assert set(answers.values()) == {404}, answers


def test_an_operator_does_not_manage(otto, sign_in, scene: Scene) -> None:  # type: ignore[no-untyped-def]
    browser = sign_in(otto)
    for path in (
        "costs/budgets",
        "costs/prices/set",
        "settings/members",
        "settings/secrets",
        "agents/ada/terminate",
    ):
        assert browser.post(f"/c/ACM/{path}").status_code == 403, path


def test_a_viewer_sees_no_button_that_acts(veras: Client, scene: Scene) -> None:
    page = veras.get(f"/c/ACM/issues/{scene.running.identifier}").content.decode()
    assert "Comment and wake" not in page
    assert "/edit" not in page


def test_a_form_without_its_fields_is_no_fault_of_ours(olgas: Client, scene: Scene) -> None:
    answers = {path: olgas.post(f"/c/ACM/{path}").status_code for path in acts(scene)}
    assert max(answers.values()) < 500, answers


def test_a_form_from_elsewhere_is_refused(olga, acme: Company) -> None:  # type: ignore[no-untyped-def]
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(olga)
    assert browser.post("/c/ACM/issues/new", {"title": "Forged"}).status_code == 403
