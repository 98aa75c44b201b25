"""The pages of agents and runs."""

from __future__ import annotations

import pytest
from django.template.loader import render_to_string
from django.test import Client

from agents.adapters.base import Check
from agents.models import Agent, AgentKey, HeartbeatRun
from companies.models import Company
from tests import factories
from tests.pages.conftest import Scene, event

FORM = {
    "name": "Cleo",
    "title": "Scribe",
    "reports_to": "",
    "instructions": "",
    "on_finish": "done",
    "wake_on_demand": "on",
    "interval_seconds": "3600",
    "max_concurrent_runs": "1",
    "max_daily_runs": "",
}


def text(answer: object) -> str:
    return answer.content.decode()  # type: ignore[attr-defined, no-any-return]


def test_hiring_offers_every_kind_of_adapter(olgas: Client) -> None:
    page = text(olgas.get("/c/ACM/agents/new"))
    for kind in ("openai", "anthropic", "process", "http", "demo"):
        assert f"?adapter={kind}" in page


def test_an_agent_is_hired_with_a_typed_configuration(olgas: Client, acme: Company) -> None:
    answer = olgas.post(
        "/c/ACM/agents/new",
        FORM
        | {
            "adapter_type": "process",
            "config-command": "/usr/bin/env",
            "config-args": "first\nsecond argument",
            "config-env": "GREETING=hello\nTOKEN={{secret:TOKEN}}",
            "config-timeoutSec": "60",
        },
    )
    assert answer["Location"] == "/c/ACM/agents/cleo/"
    hired = Agent.objects.get()
    assert hired.adapter_config["args"] == ["first", "second argument"]
    assert hired.adapter_config["env"]["TOKEN"] == {"type": "secret_ref", "secret": "TOKEN"}
    assert hired.adapter_config["timeoutSec"] == 60


@pytest.mark.parametrize(
    ("kind", "config", "shown"),
    [
        ("process", {"command": "true"}, "None: it may do what Paperclip&#x27;s user may"),
        ("claude_local", {"isolation": "bubblewrap"}, "Bubblewrap, with the network"),
        (
            "process",
            {"command": "true", "isolation": "bubblewrap", "isolationNetwork": False},
            "Bubblewrap, without a network",
        ),
        ("openai", {"model": "m"}, ""),
    ],
)
def test_an_agents_page_tells_how_its_programs_are_kept_apart(
    olgas: Client, acme: Company, kind: str, config: dict[str, object], shown: str
) -> None:
    factories.agent(acme, "Cleo", adapter_type=kind, adapter_config=config)

    page = text(olgas.get("/c/ACM/agents/cleo/"))

    assert ("<dt>Isolation</dt>" in page) is bool(shown)
    assert shown in page


def test_isolation_is_chosen_in_the_form(olgas: Client, acme: Company) -> None:
    entered = {"adapter_type": "process", "config-command": "/usr/bin/env"}
    olgas.post("/c/ACM/agents/new", FORM | entered | {"config-isolation": "bubblewrap"})

    config = Agent.objects.get().adapter_config
    assert (config["isolation"], config["isolationNetwork"]) == ("bubblewrap", False)


def test_what_was_configured_is_shown_again(olgas: Client, acme: Company) -> None:
    factories.agent(
        acme,
        "Cleo",
        adapter_type="process",
        adapter_config={"command": "/bin/true", "args": ["a", "b c"], "env": {"X": "1"}},
    )
    page = text(olgas.get("/c/ACM/agents/cleo/configuration"))
    assert "a\nb c</textarea>" in page
    assert "X=1</textarea>" in page


def test_saving_a_configuration_unchanged_changes_nothing_in_it(
    olgas: Client, acme: Company
) -> None:
    config = {"command": "/bin/true", "args": ["a", "b c"], "env": {"X": "1"}}
    cleo = factories.agent(acme, "Cleo", adapter_type="process", adapter_config=config)
    answer = olgas.post(
        "/c/ACM/agents/cleo/configuration",
        FORM
        | {
            "adapter_type": "process",
            "version": cleo.version,
            "config-command": "/bin/true",
            "config-args": "a\nb c",
            "config-env": "X=1",
        },
    )
    assert answer.status_code == 302
    cleo.refresh_from_db()
    assert cleo.adapter_config == config


def test_a_wrong_configuration_is_refused_at_its_field(olgas: Client, acme: Company) -> None:
    answer = olgas.post(
        "/c/ACM/agents/new",
        FORM | {"adapter_type": "openai", "config-model": "m", "config-baseUrl": "ftp://x"},
    )
    assert answer.status_code == 422
    assert 'id="id_config-baseUrl_error"' in text(answer)
    assert not Agent.objects.exists()


def test_an_agent_without_a_name_is_refused(olgas: Client, acme: Company) -> None:
    answer = olgas.post("/c/ACM/agents/new", FORM | {"adapter_type": "demo", "name": " "})
    assert answer.status_code == 422
    assert 'id="id_name_error"' in text(answer)


def test_a_manager_of_another_company_cannot_be_chosen(
    olgas: Client, acme: Company, spy: Agent
) -> None:
    form = FORM | {"adapter_type": "demo", "reports_to": str(spy.id)}
    assert olgas.post("/c/ACM/agents/new", form).status_code == 422


def test_an_unknown_adapter_is_not_found(olgas: Client) -> None:
    assert olgas.get("/c/ACM/agents/new?adapter=nonsense").status_code == 404


def test_a_configuration_is_tested_and_explained(olgas: Client, acme: Company) -> None:
    page = text(olgas.post("/c/ACM/agents/test", {"adapter_type": "demo"}))
    assert 'data-tone="ok"' in page
    page = text(
        olgas.post(
            "/c/ACM/agents/test",
            {"adapter_type": "process", "config-command": "/no/such/program"},
        )
    )
    assert 'data-tone="bad"' in page


def test_a_loop_is_limited_in_plain_words_and_dollars(olgas: Client, ada: Agent) -> None:
    page = text(olgas.get("/c/ACM/agents/ada/configuration"))
    assert "New issues from one run" in page
    assert "same_steps" not in page.replace("limit_same_steps", "")
    form = FORM | {
        "name": "Ada",
        "adapter_type": ada.adapter_type,
        "version": ada.version,
        "limit_issues_a_run": "7",
        "limit_spend_floor_micros": "2.5",
    }
    assert olgas.post("/c/ACM/agents/ada/configuration", form).status_code == 302
    ada.refresh_from_db()
    assert ada.loop_limits == {"issues_a_run": 7, "spend_floor_micros": 2_500_000}
    again = text(olgas.get("/c/ACM/agents/ada/configuration"))
    assert 'name="limit_spend_floor_micros" value="2.5"' in again
    form |= {"version": ada.version, "limit_issues_a_run": "0"}
    answer = olgas.post("/c/ACM/agents/ada/configuration", form)
    assert answer.status_code == 422
    assert 'id="id_limit_issues_a_run_error"' in text(answer)


@pytest.mark.parametrize(
    ("checks", "words"),
    [
        ([Check("Program", True, "It can be run.")], "Works"),
        ([Check("Models", True, "It answers.", "Costs are estimates.")], "Works, with a remark"),
        (
            [Check("Models", False, "It is not listed."), Check("Answer", True, "It answered.")],
            "Works, with a remark",
        ),
        ([Check("Models", True, "Listed."), Check("Answer", False, "Refused.")], "Does not work"),
        ([Check("Connection", False, "Nobody is there.")], "Does not work"),
    ],
)
def test_a_test_comes_to_one_verdict(checks: list[Check], words: str) -> None:
    page = render_to_string("agents/_checks.html", {"checks": checks})
    assert f'<b class="strong">{words}</b>' in page
    assert page.index(words) < page.index(checks[0].name)
    # Red is for what keeps it from working.
    assert ('class="icon bad"' in page) is (words == "Does not work")


def test_the_roster_says_what_everybody_works_with(olgas: Client, acme: Company) -> None:
    config = {"model": "gpt-4o-mini", "baseUrl": "http://127.0.0.1:1/v1"}
    factories.agent(acme, "Cleo", adapter_type="openai", adapter_config=config)
    program = {"command": "/opt/tools/night-shift"}
    factories.agent(acme, "Dora", adapter_type="process", adapter_config=program)
    page = text(olgas.get("/c/ACM/agents/"))
    assert "OpenAI-compatible model" in page
    assert "gpt-4o-mini" in page
    assert "night-shift" in page
    assert "General" not in page


def test_a_test_of_an_unusable_configuration_says_which_field(olgas: Client, acme: Company) -> None:
    page = text(olgas.post("/c/ACM/agents/test", {"adapter_type": "openai"}))
    assert "Model" in page


def test_pausing_keeps_the_reason_and_resuming_lifts_it(olgas: Client, ada: Agent) -> None:
    olgas.post("/c/ACM/agents/ada/pause", {"note": "Until the audit is over"})
    assert "Until the audit is over" in text(olgas.get("/c/ACM/agents/ada/"))
    assert "Until the audit is over" in text(olgas.get("/c/ACM/agents/"))
    olgas.post("/c/ACM/agents/ada/resume")
    assert not ada.holds.exists()  # type: ignore[attr-defined]


def test_waking_queues_one_run(olgas: Client, ada: Agent) -> None:
    for _ in range(2):
        olgas.post("/c/ACM/agents/ada/wake")
    assert HeartbeatRun.objects.filter(agent=ada, status="queued").count() == 1


def test_a_key_is_shown_once(olgas: Client, ada: Agent) -> None:
    page = text(olgas.post("/c/ACM/agents/ada/keys", {"name": "laptop"}))
    token = page.split("<code>")[1].split("</code>")[0]
    assert token.startswith("pcp_")
    assert token not in text(olgas.get("/c/ACM/agents/ada/keys"))
    key = AgentKey.objects.get()
    olgas.post("/c/ACM/agents/ada/keys", {"revoke": str(key.id)})
    key.refresh_from_db()
    assert key.revoked_at is not None


def test_the_org_chart_puts_reports_below_their_manager(
    olgas: Client, acme: Company, ada: Agent
) -> None:
    factories.agent(acme, "Zed", reports_to=ada)
    page = text(olgas.get("/c/ACM/agents/?view=org"))
    assert page.index(">Ada<") < page.index(">Zed<")
    assert "<ul><li>" in page.replace("\n", "")


def test_the_log_numbers_lines_and_folds_steps(olgas: Client, scene: Scene) -> None:
    run = scene.failed_run
    event(run, 2, "text", "joined ", channel="answer")
    event(run, 3, "text", "again\n", channel="answer")
    event(run, 4, "step", id="a", name="read_file", phase="start", input={"path": "a.txt"})
    event(run, 5, "step", "no such file", id="a", name="read_file", phase="end", isError=True)
    page = text(olgas.get(f"/c/ACM/runs/{run.id}"))
    assert '<a href="#L3">3</a><span class="tx">joined again</span>' in page
    assert '<details class="fold" data-s="failed" data-step="a" open>' in page
    assert "Too many requests" in page


def test_hostile_output_stays_text(olgas: Client, scene: Scene) -> None:
    run = scene.failed_run
    event(run, 2, "stdout", "<script>alert(1)</script>\x1b[31mred\x1b[0m\x07\n")
    event(run, 3, "step", id="<b>", name="<img src=x>", phase="start", input={"a": "</span><b>"})
    for view in ("", "?view=raw"):
        page = text(olgas.get(f"/c/ACM/runs/{run.id}{view}"))
        assert "<script>alert" not in page
        assert "<img" not in page
    assert '<span class="a-31">red</span>' in text(olgas.get(f"/c/ACM/runs/{run.id}"))


def test_a_live_run_names_its_stream_and_where_to_go_on(olgas: Client, scene: Scene) -> None:
    page = text(olgas.get(f"/c/ACM/runs/{scene.live_run.id}"))
    assert f'data-stream="/api/heartbeat-runs/{scene.live_run.id}/stream"' in page
    assert 'data-last-seq="1"' in page


def test_a_long_log_shows_its_end_and_counts_what_is_left_out(
    olgas: Client, scene: Scene, monkeypatch
) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("agents.views.run.WINDOW", 2)
    for seq in range(2, 7):
        event(scene.failed_run, seq, "stdout", f"line {seq}\n")
    page = text(olgas.get(f"/c/ACM/runs/{scene.failed_run.id}"))
    assert "4 events before this" in page
    assert '<a href="#L6">6</a><span class="tx">line 5</span>' in page
    whole = text(olgas.get(f"/c/ACM/runs/{scene.failed_run.id}?all=1"))
    assert '<a href="#L6">6</a><span class="tx">line 5</span>' in whole


def test_the_download_has_all_of_the_output(olgas: Client, scene: Scene) -> None:
    answer = olgas.get(f"/c/ACM/runs/{scene.failed_run.id}/log.txt")
    assert b"".join(answer.streaming_content) == b"first line\nsecond line\n"  # type: ignore[attr-defined]


def test_stopping_a_queued_run_ends_it(olgas: Client, ada: Agent, issue) -> None:  # type: ignore[no-untyped-def]
    run = factories.run(ada, issue)
    olgas.post(f"/c/ACM/runs/{run.id}/cancel")
    run.refresh_from_db()
    assert run.status == "cancelled"


def test_the_end_of_a_run_changes_its_buttons_as_well(olgas: Client, scene: Scene) -> None:
    headers = {"HX-Request": "true", "HX-Target": "run-page"}
    part = text(olgas.get(f"/c/ACM/runs/{scene.failed_run.id}", headers=headers))
    assert part.lstrip().startswith('<div id="run-page"')
    assert 'id="run-actions" class="line" hx-swap-oob="true"' in part
    assert "Run again" in part


def test_running_again_leads_to_the_new_run(olgas: Client, scene: Scene) -> None:
    answer = olgas.post(f"/c/ACM/runs/{scene.failed_run.id}/retry")
    again = HeartbeatRun.objects.get(retry_of=scene.failed_run)
    assert answer["Location"] == f"/c/ACM/runs/{again.id}"


def test_a_running_run_cannot_be_run_again(olgas: Client, scene: Scene) -> None:
    answer = olgas.post(f"/c/ACM/runs/{scene.live_run.id}/retry", follow=True)
    assert "has not ended yet" in text(answer)


def test_a_log_of_huge_pieces_shows_no_more_than_a_browser_bears(
    olgas: Client, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.views.run.WINDOW_BYTES", 2_500)
    run = scene.failed_run
    for seq in range(100, 110):
        event(run, seq, "stdout", f"piece {seq} " + "x" * 1_000 + "\n")
    page = olgas.get(f"/c/ACM/runs/{run.id}").content.decode()
    assert ("piece 107" in page, "piece 108" in page, "piece 109" in page) == (False, True, True)
    assert "events before this" in page
    raw = olgas.get(f"/c/ACM/runs/{run.id}?view=raw").content.decode()
    assert "piece 109" not in raw
