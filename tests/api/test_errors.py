"""Hostile input: a typed error of one shape, never a 500."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import OperationalError

from agents.models import Agent, AgentKey, HeartbeatRun
from companies import secrets, wire_names
from companies.errors import Invalid
from companies.models import Company, OperatorKey, Secret, User
from issues import board
from issues.models import Issue
from tests.api.conftest import Caller, operator


def post(caller: Caller, path: str, raw: bytes) -> Any:
    return caller.post(path, data=raw, content_type="application/json")


DEEP = b"[" * 5_000 + b"]" * 5_000
NESTED = b'{"a":' * 60 + b"1" + b"}" * 60
HOSTILE = {
    "not json": b"{",
    "a list": b"[]",
    "a string": b'"x"',
    "null": b"null",
    "deep": DEEP,
    "nested": b'{"title": "x", "extra": ' + NESTED + b"}",
    "nul": b'{"title": "a\\u0000b"}',
    "nul in a key": b'{"title": "x", "a\\u0000": 1}',
    "a lone surrogate": b'{"title": "\\ud800"}',
    "broken utf-8": b'{"title": "\xff\xfe"}',
    "a number for a text": b'{"title": 7}',
    "an object for a text": b'{"title": {}}',
    "no title": b"{}",
    "an empty title": b'{"title": ""}',
    "blank": b'{"title": "   "}',
    "a title without end": json.dumps({"title": "x" * 301}).encode(),
    "an unknown status": b'{"title": "x", "status": "nearly"}',
    "a bad uuid": b'{"title": "x", "parentId": "7"}',
    "a uuid as number": b'{"title": "x", "parentId": 7}',
    "too many blockers": json.dumps(
        {"title": "x", "blockedByIssueIds": ["00000000-0000-4000-8000-000000000000"] * 101}
    ).encode(),
    "nan": b'{"title": NaN}',
    "an actor": b'{"title": "x", "createdByUserId": "00000000-0000-4000-8000-000000000000"}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_body_is_400_and_changes_nothing(
    name: str, as_olga: Caller, acme: Company
) -> None:
    refused = post(as_olga, f"/api/companies/{acme.id}/issues", HOSTILE[name])

    assert refused.status_code == 400, refused.content
    assert set(refused.json()) == {"error", "code", "details"}
    assert not Issue.objects.exists()


def test_a_validation_error_names_the_field(as_olga: Caller, acme: Company) -> None:
    refused = as_olga.send("POST", f"/api/companies/{acme.id}/issues", {"title": ""})

    assert refused.json()["code"] == "invalid"
    assert refused.json()["details"]["issues"][0]["path"] == ["title"]


def test_a_backslash_before_u0000_is_no_nul(as_olga: Caller, acme: Company) -> None:
    made = post(as_olga, f"/api/companies/{acme.id}/issues", rb'{"title": "a \\u0000 b"}')

    assert made.status_code == 201


def test_a_body_beyond_10_mb_is_refused(as_olga: Caller, acme: Company) -> None:
    refused = post(as_olga, f"/api/companies/{acme.id}/issues", b" " * (10 * 1024 * 1024 + 1))

    assert refused.status_code == 413
    assert refused.json()["code"] == "body_too_large"


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=501", "limit=x", "cursor=%00", "cursor=abc", "status=nearly",
              "priority=9", "assigneeAgentId=7", "q=%00", "sort=size",
              "cursor=WyItY3JlYXRlZF9hdCwtaWQiLCJ4IiwieSJd"],
)  # fmt: skip
def test_a_bad_query_is_400(query: str, as_olga: Caller, acme: Company) -> None:
    refused = as_olga.send("GET", f"/api/companies/{acme.id}/issues?{query}")

    assert refused.status_code == 400, refused.content


def test_a_query_of_a_thousand_words_is_400(as_olga: Caller, acme: Company) -> None:
    query = "&".join(f"word{n}=1" for n in range(1_001))

    refused = as_olga.send("GET", f"/api/companies?{query}")

    assert (refused.status_code, refused.json()["code"]) == (400, "invalid")


def test_the_next_page_of_a_strangely_spelled_address_is_an_address(
    as_olga: Caller, acme: Company
) -> None:
    """Python reads an id whose leading zero has become a line break at its end."""
    for title in ("One", "Two"):
        as_olga.send("POST", f"/api/companies/{acme.id}/goals", {"title": title})
    spelled = f"{acme.id.hex.removeprefix('0')}%0A"

    answer = as_olga.send("GET", f"/api/companies/{spelled}/goals?limit=1")

    assert answer.status_code == 200, answer.content
    following = answer["Link"].removeprefix("<").partition(">")[0]
    assert following.startswith(f"/api/companies/{spelled}/goals?")
    assert len(as_olga.send("GET", following).json()) == 1


@pytest.mark.parametrize(
    "header",
    ["Bearer", "Bearer ", "Bearer x", "Basic eDp5", "Bearer pcb_x", "Bearer pcr_" + "a" * 61,
     "bearer \xff", "Token x", "Bearer " + "a" * 5000],
)  # fmt: skip
def test_a_bad_token_is_401_even_beside_a_good_session(
    header: str, olga: User, acme: Company
) -> None:
    caller = Caller()
    caller.force_login(olga)
    assert caller.get("/api/companies").status_code == 200

    refused = caller.get("/api/companies", headers={"Authorization": header})

    assert refused.status_code == 401
    assert refused["WWW-Authenticate"] == "Bearer"
    assert refused.json()["code"] == "unauthenticated"


def test_a_revoked_key_is_401_at_once(as_olga: Caller) -> None:
    OperatorKey.objects.update(revoked_at="2026-01-01T00:00:00Z")

    assert as_olga.send("GET", "/api/companies").status_code == 401


def test_a_dead_token_tells_its_holder_why(
    as_ada: Caller, as_run: Caller, adas_run: HeartbeatRun
) -> None:
    AgentKey.objects.update(expires_at="2026-01-01T00:00:00Z")
    HeartbeatRun.objects.update(status="cancelled", finished_at="2026-11-30T00:00:00Z")
    stranger = Caller(as_ada.token[:-12] + "000000" + as_ada.token[-6:])

    codes = [
        caller.send("GET", "/api/agents/me").json()["code"] for caller in (as_ada, as_run, stranger)
    ]

    assert codes == ["token_expired", "run_ended", "unauthenticated"]
    assert as_run.send("GET", "/api/agents/me")["WWW-Authenticate"] == "Bearer"


def test_guessing_tokens_is_slowed_down(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paperclip.callers.BAD_TOKENS_A_MINUTE", 2)
    guesser = Caller("pcb_guess")

    answers = [guesser.send("GET", "/api/companies").status_code for _ in range(4)]

    assert answers[:2] == [401, 401]
    assert 429 in answers
    assert "Retry-After" in guesser.send("GET", "/api/companies").headers


def test_a_session_needs_the_csrf_token_for_unsafe_methods(olga: User, acme: Company) -> None:
    browser = Caller(enforce_csrf_checks=True)
    browser.force_login(olga)
    path = f"/api/companies/{acme.id}/issues"

    assert browser.send("GET", path).status_code == 200
    refused = browser.send("POST", path, {"title": "x"})

    assert (refused.status_code, refused.json()["code"]) == (403, "csrf_failed")
    assert not Issue.objects.exists()


def test_a_key_needs_no_csrf_token(olga: User, acme: Company) -> None:
    caller = operator(olga)
    strict = Caller(caller.token, enforce_csrf_checks=True)

    made = strict.send("POST", f"/api/companies/{acme.id}/issues", {"title": "x"})

    assert made.status_code == 201


def test_unknown_addresses_answer_in_json(as_olga: Caller) -> None:
    for path in ("/api/nothing", "/api/", "/api/issues", "/api/companies/x/y/z"):
        refused = as_olga.send("GET", path)
        assert (refused.status_code, refused.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    "path", ["plugins", "pipelines/1", "companies/ACM/routines", "companies/ACM/secrets",
             "issues/ACM-1/attachments", "companies/ACM/skills", "environments/x/y"],
)  # fmt: skip
def test_what_is_left_out_says_so(path: str, as_olga: Caller) -> None:
    refused = as_olga.send("GET", f"/api/{path}")

    assert (refused.status_code, refused.json()["code"]) == (404, "not_supported")


def test_a_wrong_method_names_the_right_ones(as_olga: Caller, acme: Company) -> None:
    refused = as_olga.send("PUT", f"/api/companies/{acme.id}/issues")

    assert (refused.status_code, refused.json()["code"]) == (405, "method_not_allowed")
    assert refused["Allow"] == "GET, POST"


def test_while_the_database_is_away_the_answer_is_503(
    as_olga: Caller, acme: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(**_: Any) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(board, "create", away)
    refused = as_olga.send("POST", f"/api/companies/{acme.id}/issues", {"title": "x"})

    assert (refused.status_code, refused.json()["code"]) == (503, "database_away")
    assert refused["Retry-After"] == "2"


def test_a_fault_of_ours_tells_nothing_of_the_inside(
    as_olga: Caller, acme: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**_: Any) -> None:
        raise RuntimeError("the password is swordfish")

    monkeypatch.setattr(board, "create", broken)
    refused = as_olga.send("POST", f"/api/companies/{acme.id}/issues", {"title": "x"})

    assert (refused.status_code, refused.json()["code"]) == (500, "internal_error")
    assert b"swordfish" not in refused.content


def test_ids_in_a_body_belong_to_the_company(
    as_olga: Caller, acme: Company, spy: Agent, globex: Company
) -> None:
    for field, value in (
        ("assigneeAgentId", spy.id),
        ("parentId", globex.id),
        ("projectId", globex.id),
        ("goalId", globex.id),
        ("assigneeUserId", globex.id),
        ("blockedByIssueIds", [str(globex.id)]),
    ):
        body = {"title": "x", field: value if isinstance(value, list) else str(value)}
        refused = as_olga.send("POST", f"/api/companies/{acme.id}/issues", body)
        assert (refused.status_code, refused.json()["code"]) == (404, "unknown_reference"), field


def test_an_impossible_step_says_which_are_open(as_olga: Caller, issue: Issue) -> None:
    refused = as_olga.send("PATCH", "/api/issues/ACM-1", {"status": "in_review"})

    assert refused.status_code == 422
    assert "in_progress" in refused.json()["details"]["allowed"]


def test_a_stale_write_is_a_conflict(as_olga: Caller, issue: Issue) -> None:
    seen = as_olga.send("GET", "/api/issues/ACM-1")["ETag"]
    assert seen == '"1"'
    as_olga.send("PATCH", "/api/issues/ACM-1", {"title": "Newer"})

    stale = as_olga.send("PATCH", "/api/issues/ACM-1", {"title": "Mine"}, If_Match=seen)
    bad = as_olga.send("PATCH", "/api/issues/ACM-1", {"title": "Mine"}, If_Match='"x"')

    assert (stale.status_code, stale.json()["code"]) == (409, "version_conflict")
    assert bad.status_code == 400
    assert Issue.objects.get().title == "Newer"


def test_secrets_in_a_configuration_are_masked_and_survive_a_round_trip(
    as_olga: Caller, as_ada: Caller, acme: Company, bo: Agent
) -> None:
    path = f"/api/agents/{bo.id}"
    config = {"command": "true", "env": {"TOKEN": "s3cret", "NOTE": "also-h1dden"}}
    set_up = as_olga.send("PATCH", path, {"adapterType": "process", "adapterConfig": config})
    assert set_up.status_code == 200, set_up.content

    shown = as_olga.send("GET", path)
    as_olga.send("PATCH", path, {"adapterConfig": shown.json()["adapterConfig"]})

    assert b"s3cret" not in shown.content
    assert b"also-h1dden" not in shown.content
    env = Agent.objects.get(id=bo.id).adapter_config["env"]
    assert env["NOTE"] == "also-h1dden"
    secret = Secret.objects.get(company=acme)  # what is called a token is kept with the secrets
    assert env["TOKEN"] == {"type": "secret_ref", "secret": secret.name}
    assert secrets._open(secret) == "s3cret"
    assert as_ada.send("GET", path).json()["adapterConfig"] == {}


@pytest.mark.parametrize(
    ("prompt", "status"),
    [
        (" " * 14, 400),
        ("  Forge it ", 400),
        (" Forge it 1\t\n", 202),
        ("x" * 2_000 + " " * 50, 202),
        ("x" * 2_001, 400),
    ],
)
def test_a_prompt_is_measured_without_the_blanks_around_it(
    as_olga: Caller, ada: Agent, prompt: str, status: int
) -> None:
    answer = as_olga.send("POST", "/api/agent-tasks", {"agentId": str(ada.id), "prompt": prompt})
    assert answer.status_code == status, answer.content
    if status == 202:
        assert Issue.objects.get().description == prompt.strip()
    else:
        assert not Issue.objects.exists()
        assert not HeartbeatRun.objects.exists()


NOBODY = {"agentId": "00000000-0000-4000-8000-000000000000"}


@pytest.mark.parametrize(
    ("method", "path", "body", "says"),
    [
        (
            "POST",
            "/agent-tasks",
            {**NOBODY, "prompt": "x"},
            "at least 10 characters",
        ),
        ("POST", "{c}/agents", {"name": "x" * 300}, "name: String should have at most 80 char"),
        ("POST", "{c}/issues", {"title": ""}, "title: String should have at least 1 character"),
        ("POST", "/companies", {"name": ""}, "name: String should have at least 1 character"),
        ("PATCH", "/issues/{i}", {"blockedReason": "x" * 501}, "at most 500 characters"),
        ("GET", "{c}/issues?q=" + "x" * 201, None, "q: String should have at most 200 characters"),
    ],
)
def test_the_length_of_a_text_is_told_in_characters(
    as_olga: Caller, issue: Issue, method: str, path: str, body: Any, says: str
) -> None:
    where = path.format(c=f"/companies/{issue.company_id}", i=issue.id)
    answer = as_olga.send(method, f"/api{where}", body)
    assert answer.status_code == 400
    assert says in answer.json()["error"]
    assert "item" not in answer.json()["error"]
    first = answer.json()["details"]["issues"][0]
    assert first["code"] in ("string_too_short", "string_too_long")


def test_a_list_that_is_too_long_is_told_in_items(as_olga: Caller, issue: Issue) -> None:
    many = ["00000000-0000-4000-8000-000000000000"] * 101
    answer = as_olga.send("PATCH", f"/api/issues/{issue.id}", {"blockedByIssueIds": many})
    assert "at most 100 items" in answer.json()["error"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "/agents/{a}", {"name": " \t "}),
        ("POST", "{c}/cost-events", {"agentId": "{a}", "provider": "here", "model": "  "}),
        ("POST", "{c}/cost-events", {"agentId": "{a}", "provider": "  ", "model": "m"}),
        ("POST", "/agent-tasks", {"agentId": "{a}", "prompt": "Forge an anvil", "title": "  "}),
    ],
)
def test_a_name_of_blanks_is_none(
    as_olga: Caller, ada: Agent, method: str, path: str, body: dict[str, str]
) -> None:
    given = {name: value.replace("{a}", str(ada.id)) for name, value in body.items()}
    where = path.format(c=f"/companies/{ada.company_id}", a=ada.id)
    assert as_olga.send(method, f"/api{where}", given).status_code == 400
    ada.refresh_from_db()
    assert ada.name == "Ada"


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("/api/companies/ACM/issues?status=nope", ["status"]),
        ("/api/companies/ACM/issues?cursor=x", ["cursor"]),
        ("/api/companies/ACM/issues?limit=x", ["limit"]),
    ],
)
def test_a_400_of_an_address_names_its_parameter(
    as_olga: Caller, acme: Company, path: str, where: list[str]
) -> None:
    refused = as_olga.send("GET", path)
    assert refused.status_code == 400, refused.content
    assert refused.json()["details"]["issues"][0]["path"] == where


@pytest.mark.parametrize("name", HOSTILE)
def test_every_400_lists_what_is_wrong(name: str, as_olga: Caller, acme: Company) -> None:
    told = post(as_olga, f"/api/companies/{acme.id}/issues", HOSTILE[name]).json()
    first = told["details"]["issues"][0]
    assert set(first) == {"path", "code", "message"}
    assert first["message"] in told["error"]


def test_a_400_of_a_header_lists_itself(as_olga: Caller, issue: Issue) -> None:
    refused = as_olga.send("PATCH", "/api/issues/ACM-1", {"title": "x"}, If_Match='"x"')
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_if_match")
    assert refused.json()["details"]["issues"][0]["code"] == "invalid_if_match"


def test_a_circle_is_well_formed_but_impossible(
    as_olga: Caller, acme: Company, issue: Issue
) -> None:
    child = as_olga.send("POST", "/api/companies/ACM/issues", {"title": "x"}).json()
    assert as_olga.send(
        "PATCH", f"/api/issues/{child['id']}",
        {"parentId": str(issue.id), "blockedByIssueIds": [str(issue.id)]},
    ).status_code == 200  # fmt: skip

    for change, code in (
        ({"parentId": child["id"]}, "parent_cycle"),
        ({"blockedByIssueIds": [child["id"]]}, "blocker_cycle"),
    ):
        refused = as_olga.send("PATCH", "/api/issues/ACM-1", change)
        assert (refused.status_code, refused.json()["code"]) == (422, code), refused.content


def test_an_agent_acts_for_itself_only(
    as_ada: Caller, acme: Company, ada: Agent, bo: Agent, issue: Issue
) -> None:
    cost = {"agentId": str(bo.id), "provider": "p", "model": "m", "costMicros": 1}
    taking = {"agentId": str(bo.id), "expectedStatuses": ["todo", "backlog"]}
    for path, body in (
        ("/api/companies/ACM/cost-events", cost),
        ("/api/issues/ACM-1/checkout", taking),
    ):
        refused = as_ada.send("POST", path, body)
        assert (refused.status_code, refused.json()["code"]) == (403, "other_agent")


def test_a_refusal_speaks_of_fields_as_the_body_does() -> None:
    told = wire_names.named(
        Invalid("x", "blocked_by and assignee_agent_id: no.", field="blocked_by")
    )
    assert told == (["blockedByIssueIds"], "blockedByIssueIds and assignee_agent_id: no.")
    told = wire_names.named(Invalid("x", "assignee_agent_id must be one.", field="assignee_agent"))
    assert told == (["assigneeAgentId"], "assigneeAgentId must be one.")
    told = wire_names.named(Invalid("x", "in_progress is a status.", field="blocked_reason"))
    assert told == (["blockedReason"], "in_progress is a status.")


def test_a_delete_over_a_change_of_somebody_else_is_refused(
    as_olga: Caller, acme: Company, issue: Issue
) -> None:
    document = "/api/issues/ACM-1/documents/plan"
    as_olga.send("PUT", document, {"format": "markdown", "body": "Old"})
    made = {"kind": "anthropic", "name": "C", "baseUrl": "https://api.anthropic.com"}
    connection = as_olga.send("POST", "/api/companies/ACM/connections", made)
    assert connection.status_code == 201, connection.content
    seen = {
        document: as_olga.send("GET", document)["ETag"],
        f"/api/connections/{connection.json()['id']}": connection["ETag"],
        "/api/issues/ACM-1": as_olga.send("GET", "/api/issues/ACM-1")["ETag"],
    }
    for path, version in seen.items():
        refused = as_olga.send("DELETE", path, If_Match='"99"')
        assert (refused.status_code, refused.json()["code"]) == (409, "version_conflict"), path
        gone = as_olga.send("DELETE", path, If_Match=version)
        assert gone.status_code == 200, gone.content
