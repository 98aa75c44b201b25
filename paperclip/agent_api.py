"""Agents over the API. On the top floor, because an agent's answer carries its budget."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router
from pydantic import Field

from agents import loop_limits, roster, shapes, wakes
from agents.answers import Run
from agents.api import find
from agents.masking import masked, unmasked
from agents.models import Agent, HeartbeatRun, Hold
from billing.budget_api import set_month_limit
from billing.models import Scope
from companies import access, wire
from companies.errors import Conflict, Forbidden
from companies.models import Company, User
from issues import approvals, document_shapes
from issues.approval_models import Approval
from issues.models import Issue
from paperclip import agent_shapes, answers, org_chart

router = Router(by_alias=True)

Cents = Annotated[Decimal, Field(ge=0, le=10**11, max_digits=15, decimal_places=4)]
Word = Annotated[wire.Text, Field(max_length=120)]


class HeartbeatChange(wire.Body):
    enabled: bool | None = None
    interval_sec: Annotated[int, Field(ge=30, le=604_800, strict=True)] | None = None
    cron: Annotated[wire.Text, Field(max_length=120)] | None = None
    timezone: Annotated[wire.Text, Field(max_length=60)] | None = None
    wake_on_demand: bool | None = None
    max_concurrent_runs: Annotated[int, Field(ge=1, le=100, strict=True)] | None = None
    max_daily_runs: Annotated[int, Field(ge=0, le=wire.INT4, strict=True)] | None = None
    max_daily_cost_cents: Cents | None = None


Most = Annotated[int, Field(ge=1, le=loop_limits.MOST, strict=True)]


class LoopLimits(wire.Body):
    """Where the agent differs from the instance; replaces what it had of its own."""

    same_steps: Most | None = None
    among_steps: Most | None = None
    steps_a_minute: Most | None = None
    spend_times: Most | None = None
    spend_floor_micros: Most | None = None
    spend_runs: Most | None = None
    spend_runs_needed: Most | None = None
    idle_runs: Most | None = None
    runs_an_hour: Most | None = None
    issues_a_run: Most | None = None


class RuntimeChange(wire.Body):
    heartbeat: HeartbeatChange | None = None
    loop_limits: LoopLimits | None = None


class PermissionChange(wire.Body):
    can_create_agents: bool | None = None


class AgentFields(wire.Body):
    """The fields that a hire and a change have in common."""

    role: Annotated[wire.Text, Field(max_length=40)] | None = None
    title: Word | None = None
    icon: Annotated[wire.Text, Field(max_length=40)] | None = None
    capabilities: Annotated[wire.Text, Field(max_length=5_000)] | None = None
    reports_to: uuid.UUID | None = None
    adapter_config: dict[str, Any] | None = None
    instructions: wire.Prose | None = None
    on_finish: Literal["done", "in_review"] | None = None
    runtime_config: RuntimeChange | None = None
    permissions: PermissionChange | None = None
    budget_monthly_cents: Cents | None = None


class NewAgent(AgentFields):
    name: Annotated[wire.Text, Field(min_length=1, max_length=80)]
    adapter_type: Annotated[wire.Text, Field(max_length=30)] = "process"


class AgentChange(AgentFields):
    name: Annotated[wire.Text, Field(min_length=1, max_length=80)] | None = None
    adapter_type: Annotated[wire.Text, Field(max_length=30)] | None = None


class Pause(wire.Body):
    reason: Annotated[wire.Text, Field(max_length=500)] = ""
    stop_running: bool = False


class Nothing(wire.Body):
    """A body that says nothing; clients send `{}`."""


class Wakeup(wire.Body):
    source: Literal["timer", "assignment", "on_demand", "automation"] = "on_demand"
    trigger_detail: Annotated[wire.Text, Field(max_length=40)] | None = None
    reason: Annotated[wire.Text, Field(max_length=40)] | None = None
    payload: dict[str, Any] | None = None
    idempotency_key: Annotated[wire.Text, Field(min_length=1, max_length=200)] | None = None
    force_fresh_session: bool = False


# --- reading ---------------------------------------------------------------------------------


@router.get(
    "/companies/{company}/agents",
    response=list[answers.Agent],
    summary="The staff, in order of hiring",
)
def list_agents(
    request: HttpRequest,
    company: str,
    terminated: bool = True,
    limit: wire.Limit = wire.DEFAULT_PAGE,
    cursor: wire.Cursor | None = None,
) -> HttpResponse:
    found = wire.company(request, company)
    rows = Agent.objects.for_company(found.id)
    if not terminated:
        rows = rows.exclude(status=Agent.Status.TERMINATED)
    caller, now = wire.principal(request), timezone.now()
    return wire.page(
        request,
        rows,
        keys=("created_at", "id"),
        shape=lambda page: agent_shapes.agents(page, caller=caller, now=now),
        limit=limit,
        cursor=cursor,
    )


@router.get("/agents/me", response=answers.WholeAgent, summary="The calling agent")
def get_me(request: HttpRequest) -> HttpResponse:
    caller = wire.principal(request)
    row = Agent.objects.get(id=wire.agent_only(caller))
    return wire.answer(agent_shapes.detailed(row, caller=caller, now=timezone.now()))


@router.get("/agents/{agent}", response=answers.WholeAgent, summary="One agent")
def get_agent(request: HttpRequest, agent: str) -> HttpResponse:
    row = find(request, agent)
    shape = agent_shapes.detailed(row, caller=wire.principal(request), now=timezone.now())
    return wire.answer(shape, version=row.version)


@router.get(
    "/companies/{company}/org", response=list[answers.OrgNode], summary="Who reports to whom"
)
def get_org(request: HttpRequest, company: str) -> HttpResponse:
    return wire.answer(_org(wire.company(request, company)))


@router.get(
    "/companies/{company}/org.svg",
    summary="The same as a picture",
    openapi_extra={
        "responses": {
            200: {
                "description": "OK",
                "content": {"image/svg+xml": {"schema": {"type": "string"}}},
            }
        }
    },
)
def draw_org(request: HttpRequest, company: str) -> HttpResponse:
    picture = org_chart.svg(_org(wire.company(request, company)))
    response = HttpResponse(picture, content_type="image/svg+xml; charset=utf-8")
    response["Cache-Control"] = "no-store"
    return response


def _org(found: Company) -> list[dict[str, Any]]:
    rows = list(
        Agent.objects.for_company(found.id)
        .exclude(status=Agent.Status.TERMINATED)
        .order_by("created_at", "id")[: wire.MAX_PAGE]
    )
    running = set(
        HeartbeatRun.objects.for_company(found.id)
        .filter(status=HeartbeatRun.Status.RUNNING)
        .values_list("agent_id", flat=True)
    )
    held: dict[uuid.UUID, list[str]] = {}
    for agent_id, reason in Hold.objects.for_company(found.id).values_list("agent_id", "reason"):
        held.setdefault(agent_id, []).append(reason)
    statuses = {
        row.pk: roster.status_of(row, int(row.pk in running), held.get(row.pk, ())) for row in rows
    }
    return agent_shapes.org(rows, statuses)


# --- changing --------------------------------------------------------------------------------


@router.post("/companies/{company}/agents", response={201: answers.Agent}, summary="Hire an agent")
def create_agent(request: HttpRequest, company: str, body: NewAgent) -> HttpResponse:
    return wire.answer(_hire(request, company, body), 201)


@router.post(
    "/companies/{company}/agent-hires",
    response={201: answers.Hire},
    summary="Hire, or ask to hire, an agent",
)
def hire_agent(request: HttpRequest, company: str, body: NewAgent) -> HttpResponse:
    """A person hires at once. An agent that may hire asks: its agent waits for approval."""
    caller = wire.principal(request)
    if caller.agent_id is None:
        return wire.answer({"agent": _hire(request, company, body), "approval": None}, 201)
    found, now = wire.company(request, company, "work"), timezone.now()
    asker = Agent.objects.get(id=caller.agent_id)
    if not asker.can_hire:
        raise Forbidden("may_not_hire", "This agent may not hire.")
    given = body.given()
    cents = given.pop("budget_monthly_cents", None)
    with transaction.atomic():
        fields = {k: v for k, v in _fields(found.id, given).items() if v is not None}
        fields |= {"status": Agent.Status.PENDING_APPROVAL, "can_hire": False}
        fields.setdefault("adapter_type", body.adapter_type)
        fields.setdefault("reports_to", asker)
        row = roster.hire(company=found, actor=caller.actor, now=now, **fields)
        approval = approvals.request(
            company=found,
            type=Approval.Type.HIRE,
            payload={
                "title": f"Hire {row.name}",
                "agentId": str(row.id),
                "name": row.name,
                "role": row.role,
                "adapterType": row.adapter_type,
                "adapterConfig": masked(row.adapter_config),
                **({"budgetMonthlyCents": str(cents)} if cents else {}),
            },
            agent=row,
            actor=caller.actor,
            now=now,
        )
    shape = agent_shapes.agent(row, caller=caller, now=now)
    return wire.answer({"agent": shape, "approval": document_shapes.approval(approval)}, 201)


def _hire(request: HttpRequest, company: str, body: NewAgent) -> dict[str, Any]:
    caller, now = wire.principal(request), timezone.now()
    found = wire.company(request, company, "operate")
    given = body.given()
    cents = given.pop("budget_monthly_cents", None)
    with transaction.atomic():
        if cents:
            access.authorize(caller, "manage", found.id)
        fields = {k: v for k, v in _fields(found.id, given).items() if v is not None}
        fields.setdefault("adapter_type", body.adapter_type)
        row = roster.hire(company=found, actor=caller.actor, now=now, **fields)
        _limit(row, cents, caller, now)
    return agent_shapes.agent(row, caller=caller, now=now)


@router.patch("/agents/{agent}", response=answers.Agent, summary="Change an agent")
def change_agent(request: HttpRequest, agent: str, body: AgentChange) -> HttpResponse:
    """`***` in `adapterConfig.env` or `.headers` keeps the value that is stored."""
    caller, now = wire.principal(request), timezone.now()
    row = find(request, agent, "operate")
    given = body.given()
    cents = given.pop("budget_monthly_cents", None)
    with transaction.atomic():
        changes = _fields(row.company_id, given)
        if isinstance(changes.get("adapter_config"), dict):
            changes["adapter_config"] = unmasked(changes["adapter_config"], row.adapter_config)
        if changes:
            row = roster.update(
                agent=row,
                changes=changes,
                actor=caller.actor,
                now=now,
                if_version=wire.if_match(request),
            )
        if cents is not None:
            access.authorize(caller, "manage", row.company_id)
            _limit(row, cents, caller, now)
    shape = agent_shapes.agent(row, caller=caller, now=now)
    return wire.answer(shape, version=row.version)


@router.post(
    "/agents/{agent}/pause", response=answers.Agent, summary="Let an agent start nothing new"
)
def pause_agent(request: HttpRequest, agent: str, body: Pause | None = None) -> HttpResponse:
    caller, body = wire.principal(request), body or Pause()
    row = find(request, agent, "operate")
    roster.pause(
        agent=row,
        note=body.reason,
        stop_running=body.stop_running,
        actor=caller.actor,
        user=User.objects.filter(id=wire.user_only(caller)).first(),
        now=timezone.now(),
    )
    return _answer(row, caller)


@router.post("/agents/{agent}/resume", response=answers.Agent, summary="Let it start again")
def resume_agent(request: HttpRequest, agent: str, body: Nothing | None = None) -> HttpResponse:
    return _act(request, agent, roster.resume)


@router.post(
    "/agents/{agent}/clear-error", response=answers.Agent, summary="Take note of the last failure"
)
def clear_error(request: HttpRequest, agent: str, body: Nothing | None = None) -> HttpResponse:
    return _act(request, agent, roster.clear_error)


@router.post(
    "/agents/{agent}/approve", response=answers.Agent, summary="Let a hire that waits begin"
)
def approve_agent(request: HttpRequest, agent: str, body: Nothing | None = None) -> HttpResponse:
    return _act(request, agent, roster.approve)


@router.post(
    "/agents/{agent}/terminate", response=answers.Agent, summary="Let an agent go, for good"
)
def terminate_agent(request: HttpRequest, agent: str, body: Nothing | None = None) -> HttpResponse:
    return _act(request, agent, roster.terminate, "manage")


# --- waking ----------------------------------------------------------------------------------


@router.post("/agents/{agent}/wakeup", response={202: Run}, summary="Ask for a heartbeat")
def wake_agent(request: HttpRequest, agent: str, body: Wakeup) -> HttpResponse:
    """Answers with the run that is queued now. A second wish folds into the queued run. An agent's
    wish has the limits of its comments: it wakes neither itself nor others without end."""
    return wire.answer(_wake(request, agent, body), 202)


@router.post(
    "/agents/{agent}/heartbeat/invoke",
    response={202: Run},
    summary="Ask for a heartbeat, now",
)
def invoke_heartbeat(
    request: HttpRequest,
    agent: str,
    body: Nothing | None = None,
    companyId: uuid.UUID | None = None,
) -> HttpResponse:
    return wire.answer(_wake(request, agent, Wakeup()), 202)


def _wake(request: HttpRequest, agent: str, body: Wakeup) -> dict[str, Any]:
    caller, now = wire.principal(request), timezone.now()
    row = find(request, agent, None)
    payload = dict(body.payload or {})
    if body.force_fresh_session:
        payload["forceFreshSession"] = True
    by_agent = caller.actor.type == "agent"
    woken = wakes.wake(
        agent=row,
        issue=_issue(row, payload.get("issueId") or payload.get("taskId")),
        # A reason of a caller's own is told in the payload; the reasons are a closed list.
        reason=wakes.CALLED if by_agent else wakes.MANUAL,
        source=HeartbeatRun.Source.AUTOMATION if by_agent else HeartbeatRun.Source.ON_DEMAND,
        actor=caller.actor,
        payload={**payload, **({"reason": body.reason} if body.reason else {})},
        idempotency_key=body.idempotency_key,
        now=now,
    )
    if woken.run_id is None:
        raise Conflict(woken.refused, REFUSED.get(woken.refused, "The agent cannot be woken."))
    return shapes.run(HeartbeatRun.objects.get(id=woken.run_id), now)


REFUSED = {
    "agent_terminated": "This agent was terminated.",
    "agent_pending_approval": "This agent waits for approval.",
    "wake_on_demand_off": "This agent works by its timer only.",
    "company_archived": "The company is archived.",
    "own_change": "An agent's own acts do not wake it.",
    "wake_limit": "Agents have woken each other too often within an hour; a person goes on.",
}


# --- bodies into domain words ----------------------------------------------------------------


def _issue(agent: Agent, value: Any) -> Issue | None:
    if not isinstance(value, str):
        return None
    wanted = wire.parse_id(value, "payload.issueId")
    return wire.one_of_company(Issue, agent.company_id, wanted, "payload.issueId")


def _act(
    request: HttpRequest, agent: str, verb: Callable[..., Any], right: access.Action = "operate"
) -> HttpResponse:
    """Do something with an agent that takes no more words."""
    caller = wire.principal(request)
    row = find(request, agent, right)
    verb(agent=row, actor=caller.actor, now=timezone.now())
    return _answer(row, caller)


def _answer(row: Agent, caller: access.Principal) -> HttpResponse:
    row.refresh_from_db()
    shape = agent_shapes.agent(row, caller=caller, now=timezone.now())
    return wire.answer(shape, version=row.version)


def _fields(company_id: uuid.UUID, given: dict[str, Any]) -> dict[str, Any]:
    fields = dict(given)
    if "reports_to" in fields:
        manager = wire.one_of_company(Agent, company_id, fields["reports_to"], "reportsTo")
        fields["reports_to"] = manager
    runtime = fields.pop("runtime_config", None)
    if runtime is not None and runtime.heartbeat is not None:
        fields.update(_heartbeat(runtime.heartbeat))
    if runtime is not None and runtime.loop_limits is not None:
        own = runtime.loop_limits.given().items()
        fields["loop_limits"] = {name: value for name, value in own if value is not None}
    permissions = fields.pop("permissions", None)
    if permissions is not None and permissions.can_create_agents is not None:
        fields["can_hire"] = permissions.can_create_agents
    for name in ("role", "title", "icon", "capabilities", "instructions"):
        if name in fields and fields[name] is None:
            fields[name] = "general" if name == "role" else ""
    for name in ("name", "adapter_type", "adapter_config", "on_finish"):
        if name in fields and fields[name] is None:
            del fields[name]
    return fields


def _heartbeat(body: HeartbeatChange) -> dict[str, Any]:
    names = {
        "enabled": "heartbeat_enabled",
        "interval_sec": "interval_seconds",
        "max_daily_cost_cents": "max_daily_cost_micros",
    }
    nullable = ("cron", "max_daily_runs", "max_daily_cost_cents")
    fields: dict[str, Any] = {}
    for name, value in body.given().items():
        if value is None and name not in nullable:
            continue
        if name == "max_daily_cost_cents" and value is not None:
            value = int(value * 10_000)
        fields[names.get(name, name)] = "" if name == "cron" and value is None else value
    return fields


def _limit(row: Agent, cents: Decimal | None, caller: access.Principal, now: datetime) -> None:
    """A budget in cents; 0 means none, as the contract has it."""
    if not cents:
        return
    set_month_limit(
        company=row.company,
        scope=Scope.AGENT,
        scope_id=row.pk,
        cents=cents,
        actor=caller.actor,
        now=now,
    )
