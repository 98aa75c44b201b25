"""Costs, budgets, settings, goals, activity."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

from agents.adapters.base import Usage
from agents.models import Agent
from billing import budgets, ledger, prices
from billing.models import Budget, Reservation
from companies import activity as activity_log
from companies.models import (
    Company,
    Goal,
    Membership,
    OperatorKey,
    Project,
    Secret,
    SignInLink,
    User,
)
from companies.views import activity
from tests import factories
from tests.pages.conftest import Sign


def text(answer: object) -> str:
    return answer.content.decode()  # type: ignore[attr-defined, no-any-return]


def book(agent: Agent, micros: int | None, now: datetime, call: int = 1) -> None:
    run = factories.running(agent)
    ledger.book(
        company_id=agent.company_id,
        agent_id=agent.id,
        run_id=run.id,
        usage=Usage(
            call=call,
            provider="here",
            model="nobody-knows-it",
            input_tokens=1_000,
            output_tokens=100,
            cost_micros=micros,
        ),
        key=ledger.run_key(run.id, call),
        now=now,
    )


def test_the_month_is_shown_to_the_cent(olgas: Client, ada: Agent, now: datetime) -> None:
    book(ada, 31_500_000, now)
    page = text(olgas.get("/c/ACM/costs/"))
    assert "$31.50" in page
    assert "$31.50" in text(olgas.get("/c/ACM/panels/money"))


def test_an_unknown_price_is_never_shown_as_nothing(
    olgas: Client, ada: Agent, now: datetime
) -> None:
    book(ada, None, now)
    assert "1 without a known price" in text(olgas.get("/c/ACM/costs/"))
    assert "1 unpriced" in text(olgas.get("/c/ACM/agents/"))


def limit(company: Company, agent: Agent, micros: int, window: str = "month") -> Budget:
    return budgets.set_limit(
        company=company,
        scope="agent",
        scope_id=agent.id,
        limit_micros=micros,
        window=window,
        actor=activity_log.SYSTEM,
    )


def plain(answer: object) -> str:
    """A page's words without its tags."""
    return " ".join(re.sub(r"<[^>]*>", " ", text(answer)).split())


def test_an_agents_page_tells_every_limit_of_its_own(
    olgas: Client, acme: Company, ada: Agent, now: datetime
) -> None:
    assert "no budget of its own" in plain(olgas.get("/c/ACM/agents/ada/"))
    limit(acme, ada, 460_000, "day")
    book(ada, 460_000, now)
    page = plain(olgas.get("/c/ACM/agents/ada/"))
    assert "daily budget is used up" in page
    assert "$0.46 no monthly budget of its own" in page
    assert "$0.46 of $0.46 today" in page
    assert "no budget of its own" not in page
    limit(acme, ada, 2_000_000, "run")
    assert "At most $2.00 a run" in plain(olgas.get("/c/ACM/agents/ada/"))


def test_what_is_unpriced_is_not_zero_in_any_table(
    olgas: Client, acme: Company, ada: Agent, now: datetime
) -> None:
    limit(acme, ada, 1_000_000)
    book(ada, None, now)
    page = text(olgas.get("/c/ACM/costs/"))
    assert 'title="1 call without a known price"' in page
    assert "micro-dollars" not in page
    row = page.split('id="budgets"')[1].split("<tbody>")[1].split("</tr>")[0]
    assert "1 unpriced" in row
    assert "$0.00" not in row
    book(ada, 500, now, call=2)
    page = text(olgas.get("/c/ACM/costs/"))
    assert 'title="500 micro-dollars + 1 call without a known price"' in page


def test_a_lost_call_is_not_known_yet_wherever_its_run_is_shown(
    olgas: Client, veras: Client, acme: Company, ada: Agent, now: datetime
) -> None:
    issue = factories.issue(acme, "Forge", assignee=ada)
    run = factories.run(ada, issue, status="lost", code="lost")
    kept = Reservation.objects.create(
        company=acme,
        agent=ada,
        run_id=run.id,
        kind="call",
        state="unknown",
        granted_micros=510_000,
        open_micros=510_000,
        granted_at=now,
    )
    words, link = "$0.51 kept aside, no receipt yet", 'href="/c/ACM/costs/kept"'
    for path in (f"runs/{run.id}", "runs/", "agents/ada/", "agents/ada/runs"):
        page = text(veras.get(f"/c/ACM/{path}"))
        assert words in page, path
        assert link in page, path
        assert "$0.00</" not in page.split("agent-runs")[-1].split("</section>")[0], path
    thread = text(olgas.get(f"/c/ACM/issues/{issue.identifier}")).split('id="thread"')[1]
    assert words in thread.split("</details>")[0]
    assert "$0.00" not in thread.split("</details>")[0]
    kept.state, kept.open_micros, kept.ended_at = "released", 0, now
    kept.save()
    assert words not in text(olgas.get(f"/c/ACM/runs/{run.id}"))


def test_a_share_reads_the_same_on_home_and_costs(
    olgas: Client, acme: Company, ada: Agent, now: datetime
) -> None:
    budgets.set_limit(
        company=acme,
        scope="company",
        scope_id=acme.id,
        limit_micros=25_000_000,
        actor=activity_log.SYSTEM,
    )
    book(ada, 460_000, now)
    for path in ("panels/money", "panels/glance", "costs/"):
        assert "2 % of $25.00" in plain(olgas.get(f"/c/ACM/{path}")), path


def test_the_money_of_a_demo_is_marked_as_made_up(olgas: Client, acme: Company) -> None:
    assert "simulated" not in plain(olgas.get("/c/ACM/panels/money"))
    Company.objects.filter(id=acme.id).update(is_demo=True)
    assert "This month simulated Costs" in plain(olgas.get("/c/ACM/panels/money"))


def test_a_budget_is_set_in_dollars_and_kept_in_micros(
    olgas: Client, acme: Company, ada: Agent
) -> None:
    form = {
        "whose": f"agent:{ada.id}",
        "limit": "12.50",
        "window": "month",
        "warn_percent": "80",
        "is_hard": "on",
    }
    assert olgas.post("/c/ACM/costs/budgets", form).status_code == 302
    budget = Budget.objects.get()
    assert budget.limit_micros == 12_500_000
    assert budget.is_hard
    olgas.post(f"/c/ACM/costs/budgets/{budget.id}/remove")
    assert not Budget.objects.exists()


def test_a_budget_that_cannot_be_is_refused_at_its_field(olgas: Client, acme: Company) -> None:
    form = {"whose": f"company:{acme.id}", "limit": "-1", "window": "month", "warn_percent": "80"}
    answer = olgas.post("/c/ACM/costs/budgets", form)
    assert answer.status_code == 422
    assert 'id="id_limit_error"' in text(answer)


def test_a_budget_for_somebody_elses_agent_cannot_be_set(
    olgas: Client, acme: Company, spy: Agent
) -> None:
    form = {"whose": f"agent:{spy.id}", "limit": "1", "window": "month", "warn_percent": "80"}
    assert olgas.post("/c/ACM/costs/budgets", form).status_code == 422


def test_the_table_is_safe_to_open_in_a_spreadsheet(
    olgas: Client, acme: Company, now: datetime
) -> None:
    book(factories.agent(acme, "=1+1", slug="sum"), 5, now)
    lines = text(olgas.get("/c/ACM/costs/table.csv")).splitlines()
    assert lines[1].startswith("'=1+1,")
    assert ",0.000005," in lines[1]


def test_a_secret_is_stored_and_never_shown(olgas: Client, acme: Company) -> None:
    olgas.post("/c/ACM/settings/secrets", {"name": "OPENAI_API_KEY", "value": "sk-very-secret"})
    page = text(olgas.get("/c/ACM/settings/"))
    assert "OPENAI_API_KEY" in page
    assert "sk-very-secret" not in page
    olgas.post("/c/ACM/settings/secrets/forget", {"name": "OPENAI_API_KEY"})
    assert not Secret.objects.exists()


def test_a_refused_secret_does_not_come_back_in_the_page(olgas: Client, acme: Company) -> None:
    answer = olgas.post(
        "/c/ACM/settings/secrets", {"name": "not a name", "value": "sk-very-secret"}
    )
    assert answer.status_code == 422
    assert "not a name" in text(answer)
    assert "sk-very-secret" not in text(answer)


def test_ones_own_key_is_shown_once(veras: Client, vera: User) -> None:
    page = text(veras.post("/c/ACM/settings/keys", {"name": "laptop"}))
    token = page.split("<code>")[1].split("</code>")[0]
    assert token.startswith("pcb_")
    assert token not in text(veras.get("/c/ACM/settings/"))
    assert OperatorKey.objects.get().user == vera


def test_nobody_revokes_anothers_key(veras: Client, olgas: Client, olga: User) -> None:
    olgas.post("/c/ACM/settings/keys", {"name": "mine"})
    key = OperatorKey.objects.get()
    assert veras.post("/c/ACM/settings/keys", {"revoke": str(key.id)}).status_code == 404
    key.refresh_from_db()
    assert key.revoked_at is None


def test_a_new_member_gets_a_link_that_is_shown_once(
    olgas: Client, acme: Company, client: Client
) -> None:
    form = {"email": "nina@example.com", "role": "operator"}
    page = text(olgas.post("/c/ACM/settings/members", form))
    link = page.split("<code>")[1].split("</code>")[0]
    assert client.post(link.removeprefix("http://testserver")).status_code == 302
    assert client.get("/c/ACM/").status_code == 200


def test_who_founds_a_company_gets_no_way_into_anothers_account(
    oscars: Client, acme: Company, now: datetime
) -> None:
    """Many accounts have no password: their people came by a link. The first operator's, too."""
    root = User.objects.create_superuser("root@example.com")
    nina = User.objects.create_user("nina@example.com")
    factories.member(acme, nina)
    gone = User.objects.create_user("gone@example.com", last_login=now)

    for person in (root, nina, gone):
        form = {"email": person.email, "role": "viewer"}
        page = text(oscars.post("/c/GLO/settings/members", form, follow=True))
        assert f"{person}, who has an account, is a member now." in page
        assert "/sign-in/" not in page

    assert not SignInLink.objects.exists()


def test_a_link_that_nobody_used_can_be_had_again(olgas: Client, acme: Company) -> None:
    form = {"email": "nina@example.com", "role": "operator"}
    olgas.post("/c/ACM/settings/members", form)
    nina = User.objects.get(email="nina@example.com")
    olgas.post(f"/c/ACM/settings/members/{nina.id}", {"remove": "1"})

    assert "/sign-in/" in text(olgas.post("/c/ACM/settings/members", form))


def test_roles_change_and_the_last_owner_stays(olgas: Client, acme: Company, vera: User) -> None:
    olgas.post(f"/c/ACM/settings/members/{vera.id}", {"role": "operator"})
    assert Membership.objects.get(user=vera).role == "operator"
    owner = Membership.objects.get(company=acme, role="owner")
    answer = olgas.post(f"/c/ACM/settings/members/{owner.user_id}", {"role": "viewer"}, follow=True)
    assert "needs an owner" in text(answer)


def test_the_company_is_paused_with_a_reason(olgas: Client, acme: Company) -> None:
    olgas.post("/c/ACM/settings/state", {"wish": "pause", "reason": "Stocktaking"})
    assert "Stocktaking" in text(olgas.get("/c/ACM/"))
    olgas.post("/c/ACM/settings/state", {"wish": "resume"})
    assert "Stocktaking" not in text(olgas.get("/c/ACM/"))


def test_a_wrong_cap_is_said_and_the_text_is_kept(olgas: Client, acme: Company) -> None:
    form = {"name": "Acme & Sons", "description": "", "max_concurrent_agents": "many"}
    answer = olgas.post("/c/ACM/settings/company", form)
    assert answer.status_code == 422
    assert "Acme &amp; Sons" in text(answer)


def test_goals_and_projects_are_made_and_changed(olgas: Client, acme: Company) -> None:
    olgas.post(
        "/c/ACM/goals/save", {"title": "Grow", "level": "company", "status": "active", "parent": ""}
    )
    goal = Goal.objects.get()
    olgas.post(
        "/c/ACM/goals/save", {"id": str(goal.id), "title": "Grow more", "status": "achieved"}
    )
    goal.refresh_from_db()
    assert (goal.title, goal.status) == ("Grow more", "achieved")
    olgas.post("/c/ACM/goals/projects", {"name": "Barn", "goal": str(goal.id), "status": "planned"})
    assert Project.objects.get().goal == goal


def test_only_an_owner_names_a_folder_of_the_server(otto: User, acme: Company, sign_in) -> None:  # type: ignore[no-untyped-def]
    sign_in(otto).post("/c/ACM/goals/projects", {"name": "Barn", "workspace": "/etc"})
    assert not Project.objects.exists()


def test_every_change_leaves_a_line_in_the_activity(olgas: Client, acme: Company) -> None:
    olgas.post("/c/ACM/issues/new", {"title": "Forge", "priority": "medium", "status": "backlog"})
    page = text(olgas.get("/c/ACM/activity/"))
    assert "Olga" in page
    assert "ACM-1" in page


def test_a_passed_budget_is_a_sentence(
    olgas: Client, acme: Company, ada: Agent, now: datetime
) -> None:
    form = {"whose": f"agent:{ada.id}", "limit": "1", "window": "month", "warn_percent": "80"}
    olgas.post("/c/ACM/costs/budgets", form)
    book(ada, 900_000, now)
    page = " ".join(re.sub(r"<[^>]+>", " ", text(olgas.get("/c/ACM/activity/"))).split())
    assert "Paperclip saw spending pass a mark in the budget of Ada 80 % of $1.00" in page
    assert "set a budget for Ada" in page


def test_every_act_of_several_words_reads_as_a_sentence() -> None:
    """Other verbs are put before their noun as they stand: "wakes cut issue ACM-1"."""
    nouns = "agent|approval|budget|company|connection|cost|goal|interaction|issue|label|member"
    nouns += "|price|project|reservation|run|secret"
    apps = ("companies", "agents", "issues", "billing", "paperclip")
    files = (path for app in apps for path in (settings.BASE_DIR / app).rglob("*.py"))
    acts = set(re.findall(rf'"((?:{nouns})\.\w+_\w+)"', "".join(map(Path.read_text, files))))
    assert {"issue.wakes_cut", "agent.error_cleared", "member.role_changed"} <= acts
    assert acts <= activity.VERBS.keys()


def test_the_activity_pages_to_its_end(olgas: Client, acme: Company) -> None:
    for n in range(70):
        olgas.post("/c/ACM/goals/save", {"title": f"Goal {n}"})
    first = text(olgas.get("/c/ACM/activity/"))
    onward = first.split('rel="next" href="')[1].split('"')[0].replace("&amp;", "&")
    second = text(olgas.get(f"/c/ACM/activity/{onward}"))
    assert first.count("activity-row") + second.count("activity-row") == 70
    assert olgas.get("/c/ACM/activity/?after=nonsense_x").status_code == 200


def test_a_price_is_set_in_dollars_a_million_tokens(
    olgas: Client, acme: Company, now: datetime
) -> None:
    form = {"model": "qwen3:8b", "per_input": "0.15", "per_output": "0"}
    assert olgas.post("/c/ACM/costs/prices/set", form).status_code == 302
    found = prices.own(
        company_id=acme.id, provider="", model="qwen3:8b", now=now + timedelta(days=36_500)
    )
    assert found is not None
    assert found.rate("input") == 150_000
    assert found.rate("output") == 0
    page = text(olgas.get("/c/ACM/costs/prices"))
    assert "qwen3:8b" in page
    assert "$0.15" in page


def test_a_price_that_cannot_be_is_refused_at_its_field(olgas: Client, acme: Company) -> None:
    form = {"model": "qwen3:8b", "per_input": "-1", "per_output": "many"}
    answer = olgas.post("/c/ACM/costs/prices/set", form)
    assert answer.status_code == 422
    assert 'id="id_per_input_error"' in text(answer)
    assert 'id="id_per_output_error"' in text(answer)


def test_a_price_since_a_day_that_nobody_can_show_is_refused(olgas: Client, acme: Company) -> None:
    form = {"model": "zz", "per_input": "1", "per_output": "1", "effective_on": "0001-01-01"}
    answer = olgas.post("/c/ACM/costs/prices/set", form)
    assert answer.status_code == 422
    assert 'id="id_effective_on_error"' in text(answer)
    assert olgas.get("/c/ACM/costs/prices").status_code == 200


@pytest.mark.parametrize(
    "address",
    [
        "activity/?day=9999-12-31",
        "activity/?day=0001-01-01",
        "activity/?after=9999-12-31T23:59:59-12:00_6f7b6c4e-2f4f-4d3a-9a4c-111111111111",
        "inbox/?show=decided&before=0001-01-01T00:00:00%2B14:00",
    ],
)
def test_pages_stand_whatever_moment_their_address_tells(
    olgas: Client, acme: Company, address: str
) -> None:
    assert olgas.get(f"/c/ACM/{address}").status_code == 200


def test_a_budget_can_let_calls_without_a_price_pass(olgas: Client, acme: Company) -> None:
    form = {"whose": f"company:{acme.id}", "limit": "5", "window": "month", "warn_percent": "80"}
    olgas.post("/c/ACM/costs/budgets", form | {"unpriced_calls": "20", "is_hard": "on"})
    assert Budget.objects.get().unpriced_calls == 20
    assert "20 calls without a price" in text(olgas.get("/c/ACM/costs/"))


def test_raising_a_budget_keeps_the_calls_that_it_lets_pass(olgas: Client, acme: Company) -> None:
    form = {"whose": f"company:{acme.id}", "limit": "5", "window": "month", "warn_percent": "80"}
    olgas.post("/c/ACM/costs/budgets", form | {"unpriced_calls": "20", "is_hard": "on"})
    olgas.post("/c/ACM/costs/budgets", form | {"limit": "9", "is_hard": "on"})
    budget = Budget.objects.get()
    assert budget.limit_micros == 9_000_000
    assert budget.unpriced_calls == 20


# --- the archive of companies ---


def test_a_company_is_archived_after_a_question_and_comes_back_paused(
    olgas: Client, acme: Company, globex: Company, olga: User
) -> None:
    factories.member(globex, olga, "owner")
    asked = text(olgas.get("/c/ACM/settings/"))
    assert "Danger zone" in asked
    assert "an owner can restore it" in asked

    done = text(olgas.post("/c/ACM/settings/state", {"wish": "archive"}, follow=True))
    acme.refresh_from_db()
    assert acme.status == "archived"
    assert "Acme is archived." in done
    assert 'action="/c/ACM/settings/state"' in done
    switch = text(olgas.get("/c/GLO/")).partition("company-switch")[2].partition("</details>")[0]
    assert "/c/ACM/" not in switch
    assert "1 archived" in switch
    assert olgas.get("/").headers["Location"] == "/c/GLO/"
    assert "/c/ACM/settings/#archive" in text(olgas.get("/companies/new"))

    olgas.post("/c/ACM/settings/state", {"wish": "restore"})
    acme.refresh_from_db()
    assert acme.status == "paused"
    assert "/c/ACM/" in text(olgas.get("/c/GLO/"))
    assert "/c/ACM/" not in text(olgas.get("/companies/new"))


def test_who_has_only_archived_companies_is_shown_them(olgas: Client, acme: Company) -> None:
    olgas.post("/c/ACM/settings/state", {"wish": "archive"})
    assert "Archived companies" in text(olgas.get("/", follow=True))


def test_only_owners_archive_and_restore(
    veras: Client, acme: Company, otto: User, sign_in: Sign
) -> None:
    for browser in (veras, sign_in(otto)):
        assert "Danger zone" not in text(browser.get("/c/ACM/settings/"))
        for wish in ("archive", "restore"):
            answer = browser.post("/c/ACM/settings/state", {"wish": wish})
            assert answer.status_code == 403
    acme.refresh_from_db()
    assert acme.status == "active"
