"""Who may call what: one row a route, one column a kind of caller.

A cell is the status of a call that is right in every other way. Columns: nobody, a stranger
(owner of another company), a stranger's agent, viewer, operator, owner, agent (its key), run (its
token), ghost (the token of a run that has ended: nobody). A new route without a row fails
`test_matrix.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

COLUMNS = ("nobody", "stranger", "spy", "viewer", "operator", "owner", "agent", "run", "ghost")


class Row(NamedTuple):
    """`cells` follows COLUMNS. `path` and `body` name objects of the story in braces."""

    cells: tuple[int, ...]
    path: str
    body: Any = None


def _row(*cells: int, path: str, body: Any = None) -> Row:
    nobody, *_ = cells
    assert len(cells) == len(COLUMNS) - 1
    return Row((*cells, nobody), path, body)


def everyone_reads(path: str) -> Row:
    """Inside the company all may look; outside there is nothing to see."""
    return _row(401, 404, 404, 200, 200, 200, 200, 200, path=path)


def operators_write(path: str, body: Any = None, ok: int = 200) -> Row:
    return _row(401, 404, 404, 403, ok, ok, 403, 403, path=path, body=body)


def owners_write(path: str, body: Any = None, ok: int = 200) -> Row:
    return _row(401, 404, 404, 403, 403, ok, 403, 403, path=path, body=body)


def all_but_viewers(path: str, body: Any = None, ok: int = 200) -> Row:
    """Operators and the company's own agents."""
    return _row(401, 404, 404, 403, ok, ok, ok, ok, path=path, body=body)


def operators_and_not_itself(path: str, body: Any = None) -> Row:
    """Who may wake Ada: she is refused by her own key and her own run."""
    return _row(401, 404, 404, 403, 202, 202, 409, 409, path=path, body=body)


def people_about_themselves(path: str, body: Any = None, ok: int = 200) -> Row:
    return _row(401, ok, 403, ok, ok, ok, 403, 403, path=path, body=body)


def people_read(path: str) -> Row:
    """A member's own marks, whatever the role."""
    return _row(401, 404, 403, 200, 200, 200, 403, 403, path=path)


def agents_about_themselves(path: str) -> Row:
    return _row(401, 403, 200, 403, 403, 403, 200, 200, path=path)


def anybody(path: str, body: Any = None, ok: int = 200) -> Row:
    return _row(ok, ok, ok, ok, ok, ok, ok, ok, path=path, body=body)


C = "/companies/{company}"
ISSUE = "/issues/{issue}"
A = "/agents/{agent}"
R = "/heartbeat-runs/{run}"
CONNECTION = "/connections/{connection}"
DOC = ISSUE + "/documents/{doc}"
APPROVAL = "/approvals/{approval}"
QUESTION = {"kind": "ask_user_questions", "payload": {"question": "Round or square?"}}
YES = {"kind": "request_confirmation", "payload": {"prompt": "Melt it?"}}
COST = {"agentId": "{agent}", "provider": "x", "model": "y", "costCents": 1}

MATRIX: dict[str, Row] = {
    "GET /health": anybody("/health"),
    "GET /health/ready": anybody("/health/ready", ok=503),  # the tests have no shift
    # companies
    "GET /companies": _row(401, 200, 200, 200, 200, 200, 200, 200, path="/companies"),
    "POST /companies": people_about_themselves("/companies", {"name": "Second"}, 201),
    "GET /companies/stats": _row(401, 200, 200, 200, 200, 200, 200, 200, path="/companies/stats"),
    "GET /companies/{company}": everyone_reads(C),
    "PATCH /companies/{company}": owners_write(C, {"description": "x"}),
    "POST /companies/{company}/archive": owners_write(f"{C}/archive"),
    "GET /companies/{company}/members": everyone_reads(f"{C}/members"),
    "GET /companies/{company}/activity": everyone_reads(f"{C}/activity"),
    "GET /companies/{company}/dashboard": everyone_reads(f"{C}/dashboard"),
    "GET /companies/{company}/sidebar-badges": everyone_reads(f"{C}/sidebar-badges"),
    "GET /companies/{company}/search": everyone_reads(f"{C}/search?q=anvil"),
    "GET /companies/{company}/org": everyone_reads(f"{C}/org"),
    "GET /companies/{company}/org.svg": everyone_reads(f"{C}/org.svg"),
    "GET /companies/{company}/goals": everyone_reads(f"{C}/goals"),
    "POST /companies/{company}/goals": operators_write(f"{C}/goals", {"title": "More"}, 201),
    "GET /goals/{goal_id}": everyone_reads("/goals/{goal}"),
    "PATCH /goals/{goal_id}": operators_write("/goals/{goal}", {"title": "Most"}),
    "DELETE /goals/{goal_id}": operators_write("/goals/{goal}"),
    "GET /companies/{company}/projects": everyone_reads(f"{C}/projects"),
    "POST /companies/{company}/projects": operators_write(f"{C}/projects", {"name": "P"}, 201),
    "GET /projects/{project_id}": everyone_reads("/projects/{project}"),
    "PATCH /projects/{project_id}": operators_write("/projects/{project}", {"name": "Q"}),
    "DELETE /projects/{project_id}": operators_write("/projects/{project}"),
    # a person's own
    "GET /auth/get-session": people_about_themselves("/auth/get-session"),
    "GET /board-api-keys": people_about_themselves("/board-api-keys"),
    "POST /board-api-keys": people_about_themselves("/board-api-keys", {"name": "k"}, 201),
    "DELETE /board-api-keys/{key_id}": _row(
        401, 404, 403, 404, 404, 200, 403, 403, path="/board-api-keys/{olgas_key}"
    ),
    # a command-line client
    "POST /cli-auth/challenges": anybody("/cli-auth/challenges", {}, 201),
    "GET /cli-auth/challenges/{login_id}": anybody("/cli-auth/challenges/{login}?token={secret}"),
    "POST /cli-auth/challenges/{login_id}/approve": people_about_themselves(
        "/cli-auth/challenges/{login}/approve", {"token": "{secret}"}
    ),
    "POST /cli-auth/challenges/{login_id}/cancel": anybody(
        "/cli-auth/challenges/{login}/cancel", {"token": "{secret}"}
    ),
    "GET /cli-auth/me": people_about_themselves("/cli-auth/me"),
    "POST /cli-auth/revoke-current": people_about_themselves("/cli-auth/revoke-current"),
    # agents
    "GET /companies/{company}/agents": everyone_reads(f"{C}/agents"),
    "POST /companies/{company}/agents": operators_write(
        f"{C}/agents", {"name": "Cy", "adapterType": "demo"}, 201
    ),
    # Ada may hire; what she hires waits for approval.
    "POST /companies/{company}/agent-hires": all_but_viewers(
        f"{C}/agent-hires", {"name": "Cy", "adapterType": "demo"}, 201
    ),
    "GET /agents/me": agents_about_themselves("/agents/me"),
    "GET /agents/me/inbox-lite": agents_about_themselves("/agents/me/inbox-lite"),
    "GET /agents/{agent}": everyone_reads(A),
    "PATCH /agents/{agent}": operators_write(A, {"title": "Smith"}),
    "POST /agents/{agent}/pause": operators_write(f"{A}/pause"),
    "POST /agents/{agent}/resume": operators_write(f"{A}/resume"),
    "POST /agents/{agent}/clear-error": operators_write(f"{A}/clear-error"),
    # Ada waits for no approval: 409 for all who may
    "POST /agents/{agent}/approve": operators_write(f"{A}/approve", ok=409),
    "POST /agents/{agent}/terminate": owners_write(f"{A}/terminate"),
    "POST /agents/{agent}/wakeup": operators_and_not_itself(f"{A}/wakeup", {}),
    "POST /agents/{agent}/heartbeat/invoke": operators_and_not_itself(f"{A}/heartbeat/invoke", {}),
    "GET /companies/{company}/connections": everyone_reads(f"{C}/connections"),
    "POST /companies/{company}/connections": owners_write(
        f"{C}/connections", {"name": "New", "kind": "anthropic"}, 201
    ),
    "GET /connections/{connection_id}": everyone_reads(CONNECTION),
    "PATCH /connections/{connection_id}": owners_write(CONNECTION, {"requestsPerMinute": 60}),
    "DELETE /connections/{connection_id}": owners_write(CONNECTION),
    "POST /connections/{connection_id}/test": owners_write(f"{CONNECTION}/test", {}),
    "POST /connections/{connection_id}/reset": operators_write(f"{CONNECTION}/reset"),
    "GET /agents/{agent}/keys": owners_write(f"{A}/keys"),
    "POST /agents/{agent}/keys": owners_write(f"{A}/keys", {"name": "k"}, 201),
    "DELETE /agents/{agent}/keys/{key_id}": owners_write(A + "/keys/{adas_key}"),
    "GET /agents/{agent}/config-revisions": operators_write(f"{A}/config-revisions"),
    "GET /agents/{agent}/config-revisions/{revision_id}": operators_write(
        A + "/config-revisions/{set_up}"
    ),
    "POST /agents/{agent}/config-revisions/{revision_id}/rollback": operators_write(
        A + "/config-revisions/{set_up}/rollback"
    ),
    "GET /agents/{agent}/configuration": operators_write(f"{A}/configuration"),
    "GET /agents/{agent}/runtime-state": everyone_reads(f"{A}/runtime-state"),
    "POST /agents/{agent}/runtime-state/reset-session": operators_write(
        f"{A}/runtime-state/reset-session", {"taskKey": "{issue}"}
    ),
    "GET /companies/{company}/agent-configurations": operators_write(f"{C}/agent-configurations"),
    "GET /companies/{company}/adapters": everyone_reads(f"{C}/adapters"),
    "GET /companies/{company}/adapters/{adapter}/models": everyone_reads(
        C + "/adapters/{adapter}/models"
    ),
    "POST /companies/{company}/adapters/{adapter}/test-environment": operators_write(
        C + "/adapters/{adapter}/test-environment", {"adapterConfig": {}}
    ),
    "PATCH /agents/{agent}/budgets": owners_write(f"{A}/budgets", {"budgetMonthlyCents": 500}),
    # runs
    "GET /companies/{company}/heartbeat-runs": everyone_reads(f"{C}/heartbeat-runs"),
    "GET /companies/{company}/live-runs": everyone_reads(f"{C}/live-runs"),
    "GET /heartbeat-runs/{run_id}": everyone_reads(R),
    "GET /heartbeat-runs/{run_id}/events": everyone_reads(f"{R}/events"),
    "GET /heartbeat-runs/{run_id}/log": everyone_reads(f"{R}/log"),
    "POST /heartbeat-runs/{run_id}/cancel": operators_write(f"{R}/cancel"),
    # only the run itself; ACM's run is not one that waits for a call back
    "POST /heartbeat-runs/{run_id}/lease": _row(
        401, 404, 404, 403, 403, 403, 403, 409, path=f"{R}/lease"
    ),
    "POST /heartbeat-runs/{run_id}/result": _row(
        401, 404, 404, 403, 403, 403, 403, 409, path=f"{R}/result", body={"summary": "x"}
    ),
    # issues
    "GET /companies/{company}/issues": everyone_reads(f"{C}/issues"),
    "POST /companies/{company}/issues": all_but_viewers(f"{C}/issues", {"title": "New"}, 201),
    "GET /companies/{company}/issues/count": everyone_reads(f"{C}/issues/count"),
    "GET /issues/{issue}": everyone_reads(ISSUE),
    "PATCH /issues/{issue}": all_but_viewers(ISSUE, {"title": "Newer"}),
    # Ada's run works on it: 409 for all who may
    "DELETE /issues/{issue}": operators_write(ISSUE, ok=409),
    "GET /issues/{issue}/children": everyone_reads(f"{ISSUE}/children"),
    "POST /issues/{issue}/children": all_but_viewers(f"{ISSUE}/children", {"title": "Child"}, 201),
    "GET /issues/{issue}/heartbeat-context": everyone_reads(f"{ISSUE}/heartbeat-context"),
    "GET /issues/{issue}/activity": everyone_reads(f"{ISSUE}/activity"),
    "GET /issues/{issue}/cost-summary": everyone_reads(f"{ISSUE}/cost-summary"),
    "GET /issues/{issue}/runs": everyone_reads(f"{ISSUE}/runs"),
    "GET /issues/{issue}/live-runs": everyone_reads(f"{ISSUE}/live-runs"),
    "GET /issues/{issue}/active-run": everyone_reads(f"{ISSUE}/active-run"),
    "POST /issues/{issue}/checkout": all_but_viewers(f"{ISSUE}/checkout", {"agentId": "{agent}"}),
    "POST /issues/{issue}/release": all_but_viewers(f"{ISSUE}/release", {}),
    "POST /issues/{issue}/admin/force-release": operators_write(f"{ISSUE}/admin/force-release", {}),
    # the thread
    "GET /issues/{issue}/comments": everyone_reads(f"{ISSUE}/comments"),
    "POST /issues/{issue}/comments": all_but_viewers(f"{ISSUE}/comments", {"body": "Hi"}, 201),
    "GET /issues/{issue}/comments/{comment}": everyone_reads(ISSUE + "/comments/{comment}"),
    # agents take back only their own words
    "DELETE /issues/{issue}/comments/{comment}": operators_write(ISSUE + "/comments/{comment}"),
    "GET /issues/{issue}/interactions": everyone_reads(f"{ISSUE}/interactions"),
    "POST /issues/{issue}/interactions": all_but_viewers(f"{ISSUE}/interactions", QUESTION, 201),
    "POST /issues/{issue}/interactions/{interaction}/accept": operators_write(
        ISSUE + "/interactions/{confirmation}/accept"
    ),
    "POST /issues/{issue}/interactions/{interaction}/reject": operators_write(
        ISSUE + "/interactions/{confirmation}/reject"
    ),
    "POST /issues/{issue}/interactions/{interaction}/respond": operators_write(
        ISSUE + "/interactions/{question}/respond", {"answer": "Round"}
    ),
    "POST /issues/{issue}/interactions/{interaction}/cancel": all_but_viewers(
        ISSUE + "/interactions/{question}/cancel", {}
    ),
    # what hangs on an issue
    "GET /issues/{issue}/documents": everyone_reads(f"{ISSUE}/documents"),
    "GET /issues/{issue}/documents/{key}": everyone_reads(DOC),
    "PUT /issues/{issue}/documents/{key}": all_but_viewers(DOC, {"body": "New"}),
    "DELETE /issues/{issue}/documents/{key}": operators_write(DOC),
    "POST /issues/{issue}/documents/{key}/lock": all_but_viewers(f"{DOC}/lock", {}),
    "POST /issues/{issue}/documents/{key}/unlock": all_but_viewers(f"{DOC}/unlock", {}),
    "GET /issues/{issue}/documents/{key}/revisions": everyone_reads(f"{DOC}/revisions"),
    "POST /issues/{issue}/documents/{key}/revisions/{revision_id}/restore": all_but_viewers(
        DOC + "/revisions/{revision}/restore", {}
    ),
    "GET /issues/{issue}/work-products": everyone_reads(f"{ISSUE}/work-products"),
    "POST /issues/{issue}/work-products": all_but_viewers(
        f"{ISSUE}/work-products", {"type": "pull_request", "title": "PR 1"}, 201
    ),
    "PATCH /work-products/{product_id}": all_but_viewers("/work-products/{product}", {}),
    "DELETE /work-products/{product_id}": all_but_viewers("/work-products/{product}"),
    "GET /companies/{company}/labels": everyone_reads(f"{C}/labels"),
    "POST /companies/{company}/labels": all_but_viewers(f"{C}/labels", {"name": "bug"}, 201),
    "DELETE /labels/{label_id}": operators_write("/labels/{label}"),
    "POST /issues/{issue}/read": people_read(f"{ISSUE}/read"),
    "DELETE /issues/{issue}/read": people_read(f"{ISSUE}/read"),
    "POST /issues/{issue}/inbox-archive": people_read(f"{ISSUE}/inbox-archive"),
    "DELETE /issues/{issue}/inbox-archive": people_read(f"{ISSUE}/inbox-archive"),
    # approvals
    "GET /companies/{company}/approvals": everyone_reads(f"{C}/approvals"),
    "POST /companies/{company}/approvals": all_but_viewers(
        f"{C}/approvals", {"payload": {"title": "Buy"}}, 201
    ),
    "GET /approvals/{approval_id}": everyone_reads(APPROVAL),
    "GET /approvals/{approval_id}/issues": everyone_reads(f"{APPROVAL}/issues"),
    "GET /approvals/{approval_id}/comments": everyone_reads(f"{APPROVAL}/comments"),
    "POST /approvals/{approval_id}/comments": all_but_viewers(
        f"{APPROVAL}/comments", {"body": "why?"}, 201
    ),
    "POST /approvals/{approval_id}/approve": operators_write(f"{APPROVAL}/approve"),
    "POST /approvals/{approval_id}/reject": operators_write(f"{APPROVAL}/reject"),
    "POST /approvals/{approval_id}/request-revision": operators_write(
        f"{APPROVAL}/request-revision"
    ),
    # nobody has asked for a revision: 409 for all who may
    "POST /approvals/{approval_id}/resubmit": all_but_viewers(f"{APPROVAL}/resubmit", {}, 409),
    # an agent's key alone is no run
    "POST /approvals/{approval_id}/consume": _row(
        401, 404, 404, 403, 403, 403, 403, 200, path="/approvals/{permit}/consume"
    ),
    "GET /issues/{issue}/approvals": everyone_reads(f"{ISSUE}/approvals"),
    "POST /issues/{issue}/approvals": all_but_viewers(
        f"{ISSUE}/approvals", {"approvalId": "{approval}"}, 201
    ),
    "DELETE /issues/{issue}/approvals/{approval_id}": all_but_viewers(
        ISSUE + "/approvals/{approval}"
    ),
    # money
    "POST /companies/{company}/cost-events": all_but_viewers(f"{C}/cost-events", COST, 201),
    "GET /companies/{company}/costs/summary": everyone_reads(f"{C}/costs/summary"),
    "GET /companies/{company}/costs/by-agent": everyone_reads(f"{C}/costs/by-agent"),
    "GET /companies/{company}/costs/by-agent-model": everyone_reads(f"{C}/costs/by-agent-model"),
    "GET /companies/{company}/costs/by-provider": everyone_reads(f"{C}/costs/by-provider"),
    "GET /companies/{company}/costs/by-biller": everyone_reads(f"{C}/costs/by-biller"),
    "GET /companies/{company}/costs/window-spend": everyone_reads(f"{C}/costs/window-spend"),
    "POST /companies/{company}/budget-incidents/{incident_id}/resolve": owners_write(
        C + "/budget-incidents/{incident}/resolve", {"action": "keep_paused"}
    ),
    "GET /companies/{company}/costs/by-project": everyone_reads(f"{C}/costs/by-project"),
    "GET /companies/{company}/budgets/overview": everyone_reads(f"{C}/budgets/overview"),
    "POST /companies/{company}/budgets/policies": owners_write(
        f"{C}/budgets/policies", {"scopeType": "agent", "scopeId": "{agent}", "amount": 100}
    ),
    "GET /companies/{company}/prices": everyone_reads(f"{C}/prices?q=claude"),
    "POST /companies/{company}/prices": owners_write(
        f"{C}/prices",
        {"model": "m", "inputUsdPerMillion": 3, "outputUsdPerMillion": 15.25},
        201,
    ),
    "PATCH /companies/{company}/budgets": owners_write(f"{C}/budgets", {"budgetMonthlyCents": 500}),
    # one call
    # An agent's own acts do not wake it, so it gives itself no task: 409.
    "POST /agent-tasks": _row(
        401,
        404,
        404,
        403,
        202,
        202,
        409,
        409,
        path="/agent-tasks",
        body={"agentId": "{agent}", "prompt": "Forge ten anvils."},
    ),
}
