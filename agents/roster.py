"""The staff: hiring, changing, holding and letting go of agents.

Every change takes the agent's row lock first, the same that a claim takes: once a pause has
returned, nothing new starts. Each reason to hold an agent is a row of its own; whoever placed it
lifts it, nobody else.
"""

from __future__ import annotations

import re
import unicodedata
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from agents import adapters, connections, loop_limits, revisions, runs, sealing, timers
from agents.models import Agent, AgentKey, HeartbeatRun, Hold
from companies import activity, live
from companies.activity import Actor
from companies.errors import Conflict, Invalid, NotFound
from companies.models import Company, User

FIELDS = frozenset(
    {
        "name",
        "slug",
        "role",
        "title",
        "icon",
        "capabilities",
        "reports_to",
        "adapter_type",
        "adapter_config",
        "instructions",
        "on_finish",
        "can_hire",
        "heartbeat_enabled",
        "interval_seconds",
        "cron",
        "timezone",
        "wake_on_demand",
        "max_concurrent_runs",
        "max_daily_runs",
        "max_daily_cost_micros",
        "loop_limits",
        "status",
    }
)
_TIMER_FIELDS = frozenset({"heartbeat_enabled", "interval_seconds", "cron", "timezone"})
# What a person may release with "resume": the reasons that wait for a person.
_RELEASED_BY_PEOPLE = (Hold.Reason.OPERATOR, Hold.Reason.QUOTA, Hold.Reason.LOOP)
_MAX_DEPTH = 50


# --- coming and going ------------------------------------------------------------------------


@transaction.atomic
def hire(*, company: Company, actor: Actor, now: datetime | None = None, **fields: Any) -> Agent:
    """A new agent of `company`, from the fields of `FIELDS`; `name` and `adapter_type` at least.

    The short name follows from the name unless given. Raises Invalid with the field's name.
    """
    now = now or timezone.now()
    _known(fields)
    fields["name"] = name = _name(fields.get("name", ""))
    wanted = _slug(str(fields.pop("slug", "") or name))
    agent = Agent(company=company, number=_next_number(), slug=wanted, **_plain(fields))
    _set_adapter(agent, fields)
    _set_manager(agent, fields.get("reports_to"))
    _check(agent)
    sealing.put_away(agent=agent, actor=actor, now=now)
    if agent.heartbeat_enabled:
        agent.next_beat_at = timers.next_slot(agent, now)
    _insert(agent, wanted)
    connections.bind(agent=agent)
    _record(agent, actor, "agent.hired", now, {"adapterType": agent.adapter_type})
    return agent


@transaction.atomic
def update(
    *,
    agent: Agent,
    changes: Mapping[str, Any],
    actor: Actor,
    now: datetime | None = None,
    if_version: int | None = None,
    rolled_back_from: uuid.UUID | None = None,
) -> Agent:
    """Change fields of an agent. Raises Invalid, and Conflict when `if_version` is not current.

    `rolled_back_from` names the revision that the changes come from.
    """
    now = now or timezone.now()
    _known(changes)
    if "status" in changes:
        raise Invalid("field_unknown", "The status changes by its own verbs.", field="status")
    agent = _locked(agent)
    if if_version is not None and agent.version != if_version:
        raise Conflict(
            "version_conflict",
            "Somebody else has changed the agent meanwhile.",
            details={"version": agent.version},
        )
    was = revisions.snapshot(agent)
    before = {field: getattr(agent, field) for field in changes if field != "reports_to"}
    for field, value in _plain(changes).items():
        setattr(agent, field, value)
    if "name" in changes:
        agent.name = _name(changes["name"])
    if "slug" in changes:
        agent.slug = _slug(str(changes["slug"]))
    _set_adapter(agent, changes)
    if "reports_to" in changes:
        _set_manager(agent, changes["reports_to"])
    _check(agent)
    sealing.put_away(agent=agent, actor=actor, now=now)
    if _TIMER_FIELDS & changes.keys():
        agent.next_beat_at = timers.next_slot(agent, now) if agent.heartbeat_enabled else None
    agent.version += 1
    try:
        with transaction.atomic():
            agent.save()
    except IntegrityError as error:
        raise _taken(error, agent.slug) from error
    connections.bind(agent=agent)
    changed = sorted(f for f in before if before[f] != getattr(agent, f))
    if "reports_to" in changes:
        changed.append("reports_to")
    revisions.remember(
        agent=agent, before=was, actor=actor, now=now, rolled_back_from=rolled_back_from
    )
    _record(agent, actor, "agent.updated", now, {"fields": changed})
    return agent


@transaction.atomic
def approve(*, agent: Agent, actor: Actor, now: datetime | None = None) -> Agent:
    """A hire that waited for approval becomes active. Raises Conflict otherwise."""
    agent = _locked(agent)
    if agent.status != Agent.Status.PENDING_APPROVAL:
        raise Conflict("agent_not_pending", "This agent does not wait for approval.")
    return _become(agent, Agent.Status.ACTIVE, actor, "agent.approved", now or timezone.now())


def terminate(*, agent: Agent, actor: Actor, now: datetime | None = None) -> Agent:
    """Let an agent go for good: keys revoked, what waits cancelled, what runs stopped."""
    now = now or timezone.now()
    with transaction.atomic():
        agent = _locked(agent)
        if agent.status != Agent.Status.TERMINATED:
            agent.heartbeat_enabled = False
            agent.next_beat_at = None
            AgentKey.objects.filter(agent=agent, revoked_at__isnull=True).update(revoked_at=now)
            agent = _become(agent, Agent.Status.TERMINATED, actor, "agent.terminated", now)
    # Behind the lock: runs are locked before their agents. Nothing new can start any more.
    runs.cancel_queued(agent_id=agent.pk, code="agent_terminated", now=now)
    stop_runs(agent=agent, actor=actor, reason="The agent was terminated.", now=now)
    return agent


# --- holding ---------------------------------------------------------------------------------


@transaction.atomic
def hold(
    *,
    agent: Agent,
    reason: str,
    note: str = "",
    details: Mapping[str, Any] | None = None,
    actor: Actor,
    user: User | None = None,
    now: datetime | None = None,
) -> Hold:
    """Keep an agent from starting, for one reason. The same reason twice is one hold.

    What runs goes on; what is queued waits. `details` is the evidence that pages show.
    """
    now = now or timezone.now()
    agent = _locked(agent)
    placed, created = Hold.objects.get_or_create(
        agent=agent,
        reason=reason,
        defaults={
            "company_id": agent.company_id,
            "note": note[:500],
            "details": dict(details or {}),
            "created_by": user,
        },
    )
    if created:
        _record(agent, actor, "agent.held", now, {"reason": str(reason), "note": note[:500]})
    return placed


@transaction.atomic
def lift(*, agent: Agent, reason: str, actor: Actor, now: datetime | None = None) -> bool:
    """Take one reason away. False when it was not there. Other reasons stay."""
    now = now or timezone.now()
    agent = _locked(agent)
    gone, _ = Hold.objects.filter(agent=agent, reason=reason).delete()
    if not gone:
        return False
    _record(agent, actor, "agent.hold_lifted", now, {"reason": str(reason)})
    live.wake()
    return True


def pause(
    *,
    agent: Agent,
    actor: Actor,
    note: str = "",
    user: User | None = None,
    stop_running: bool = False,
    now: datetime | None = None,
) -> Agent:
    """An operator's hold: once this has returned nothing new starts.

    With `stop_running` the runs going on are asked to stop as well.
    """
    now = now or timezone.now()
    with transaction.atomic():
        agent = _locked(agent)
        if agent.status == Agent.Status.TERMINATED:
            raise Conflict("agent_terminated", "This agent was terminated.")
        hold(
            agent=agent,
            reason=Hold.Reason.OPERATOR,
            note=note,
            actor=actor,
            user=user,
            now=now,
        )
    if stop_running:
        stop_runs(agent=agent, actor=actor, reason="The agent was paused.", now=now)
    return agent


def resume(*, agent: Agent, actor: Actor, now: datetime | None = None) -> Agent:
    """Lift what waits for a person (pause, quota, loop). Starts nothing that was not queued.

    Holds of budgets stay: raising the budget lifts them.
    """
    now = now or timezone.now()
    with transaction.atomic():
        agent = _locked(agent)
        if agent.status == Agent.Status.TERMINATED:
            raise Conflict("agent_terminated", "This agent was terminated.")
        for reason in _RELEASED_BY_PEOPLE:
            lift(agent=agent, reason=reason, actor=actor, now=now)
    return agent


@transaction.atomic
def clear_error(*, agent: Agent, actor: Actor, now: datetime | None = None) -> Agent:
    """A person has seen the failure of the last run."""
    agent = _locked(agent)
    if agent.error_code:
        code, agent.error_code = agent.error_code, ""
        agent.save(update_fields=["error_code", "updated_at"])
        now = now or timezone.now()
        _record(agent, actor, "agent.error_cleared", now, {"code": code})
    return agent


def stop_runs(*, agent: Agent, actor: Actor, reason: str, now: datetime) -> int:
    """Ask all running runs of an agent to stop. Returns how many."""
    running = HeartbeatRun.objects.filter(
        company_id=agent.company_id, agent=agent, status=HeartbeatRun.Status.RUNNING
    )
    count = 0
    for run in running:
        runs.cancel(run=run, actor=actor, reason=reason, now=now)
        count += 1
    return count


def status_of(agent: Agent, running: int, holds: Iterable[str | Hold]) -> str:
    """What an agent is doing, in one word: idle, running, paused, error, pending_approval or
    terminated. `running` counts its live runs."""
    if agent.status != Agent.Status.ACTIVE:
        return agent.status
    if any(True for _ in holds):
        return "paused"
    if running:
        return "running"
    return "error" if agent.error_code else "idle"


# --- rules -----------------------------------------------------------------------------------


def _known(fields: Mapping[str, Any]) -> None:
    for field in fields:
        if field not in FIELDS:
            raise Invalid("field_unknown", f"An agent has no field {field!r}.", field=field)


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    special = {"adapter_type", "adapter_config", "reports_to", "slug"}
    return {field: value for field, value in fields.items() if field not in special}


def _set_adapter(agent: Agent, fields: Mapping[str, Any]) -> None:
    if "adapter_type" not in fields and "adapter_config" not in fields:
        if not agent.adapter_type:
            raise Invalid("adapter_missing", "Choose an adapter.", field="adapter_type")
        return
    type_ = fields.get("adapter_type", agent.adapter_type)
    config = fields.get("adapter_config")
    if config is None:
        config = agent.adapter_config if type_ == agent.adapter_type else {}
    if not isinstance(type_, str) or not isinstance(config, Mapping):
        raise Invalid("adapter_invalid", "Choose an adapter.", field="adapter_type")
    try:
        agent.adapter_type, given = adapters.resolve(type_, config)
        agent.adapter_config = adapters.validate(agent.adapter_type, given)
    except adapters.UnknownAdapter as error:
        raise Invalid("adapter_unknown", str(error), field="adapter_type") from error
    except adapters.ConfigError as error:
        refusal = Invalid("adapter_config_invalid", str(error), field="adapter_config")
        refusal.details["errors"] = error.errors
        raise refusal from error
    connections.choose(agent=agent)


def _set_manager(agent: Agent, manager: Agent | None) -> None:
    """Hang an agent under another of its company; the line upwards must not come back to it."""
    agent.reports_to = manager
    if manager is None:
        return
    if manager.company_id != agent.company_id:
        raise NotFound("There is no such agent.")
    # Two changes at once could close a circle that neither sees: one at a time a company.
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('org:' || %s, 0))",
            [str(agent.company_id)],
        )
    above: uuid.UUID | None = manager.pk
    managers = dict(Agent.objects.for_company(agent.company_id).values_list("id", "reports_to_id"))
    for _ in range(_MAX_DEPTH):
        if above is None:
            return
        if above == agent.pk:
            raise Invalid(
                "org_cycle", "An agent cannot report to itself.", field="reports_to", status=422
            )
        above = managers.get(above)
    raise Invalid(
        "org_too_deep", "The line of managers is too long.", field="reports_to", status=422
    )


def _check(agent: Agent) -> None:
    wrong = timers.problem(agent.cron, agent.timezone)
    if wrong:
        field = "timezone" if "time zone" in wrong else "cron"
        raise Invalid("timer_invalid", wrong, field=field)
    wrong = loop_limits.problem(agent.loop_limits)
    if wrong:
        raise Invalid("loop_limits_invalid", wrong, field="loop_limits")
    try:
        agent.clean_fields(exclude=["company", "reports_to", "number"])
    except ValidationError as error:
        field, messages = next(iter(error.message_dict.items()))
        raise Invalid("field_invalid", " ".join(messages), field=field) from error


def _name(given: object) -> str:
    name = str(given).strip()
    if not name:
        raise Invalid("name_missing", "An agent needs a name.", field="name")
    return name


def _slug(name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:70] or "agent"


def _insert(agent: Agent, wanted: str) -> None:
    """Save a new agent, with a number behind its short name while that is taken."""
    for attempt in range(1, 200):
        agent.slug = wanted if attempt == 1 else f"{wanted}-{attempt}"
        if Agent.objects.filter(company_id=agent.company_id, slug=agent.slug).exists():
            continue
        try:
            with transaction.atomic():
                agent.save(force_insert=True)
                return
        except IntegrityError as error:
            if "one_agent_a_short_name" not in str(error):
                raise
    raise Invalid("slug_taken", "Too many agents have this name.", field="name")


def _taken(error: IntegrityError, slug: str) -> Exception:
    if "one_agent_a_short_name" in str(error):
        return Invalid("slug_taken", f"Another agent is called {slug!r}.", field="slug")
    return error


def _next_number() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval('agents_agent_number')")
        return int(cursor.fetchone()[0])


def _locked(agent: Agent) -> Agent:
    """The agent as it is now, its row locked as a claim locks it."""
    return Agent.objects.select_for_update(no_key=True).get(pk=agent.pk)


def _become(agent: Agent, status: str, actor: Actor, action: str, now: datetime) -> Agent:
    agent.status = status
    agent.version += 1
    agent.save()
    _record(agent, actor, action, now, {})
    return agent


def _record(
    agent: Agent, actor: Actor, action: str, now: datetime, details: Mapping[str, Any]
) -> None:
    activity.record(
        company_id=agent.company_id,
        actor=actor,
        action=action,
        entity_type="agent",
        entity_id=agent.pk,
        entity_name=agent.name,
        details=details,
        now=now,
    )
    live.publish(agent.company_id, "agents")
    live.publish(agent.company_id, "agent", agent.pk)
