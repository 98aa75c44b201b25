"""Companies, their members, goals, projects and activity over the API."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import date
from typing import Annotated, Any, Literal, TypeVar

from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router
from pydantic import Field

from companies import access, answers, goals, operator_keys, shapes, tenancy, wire
from companies.errors import Invalid, NotFound
from companies.models import Activity, Company, Goal, OperatorKey, Project, User

router = Router(by_alias=True)
T = TypeVar("T", Goal, Project)
Name = Annotated[wire.Text, Field(min_length=1, max_length=120)]
Description = Annotated[wire.Text, Field(max_length=20_000)]
Level = Literal["company", "team", "agent", "task"]
GoalStatus = Literal["planned", "active", "achieved", "cancelled"]
ProjectStatus = Literal["backlog", "planned", "in_progress", "completed", "cancelled"]


class NewCompany(wire.Body):
    name: Name
    description: Description | None = None
    issue_prefix: Annotated[wire.Text, Field(max_length=8)] | None = None


class CompanyChange(wire.Body):
    name: Name | None = None
    description: Description | None = None
    max_concurrent_agents: Annotated[int, Field(ge=1, le=1000, strict=True)] | None = None


class NewGoal(wire.Body):
    title: Annotated[wire.Text, Field(min_length=1, max_length=200)]
    description: Description | None = None
    level: Level | None = None
    status: GoalStatus | None = None
    parent_id: uuid.UUID | None = None
    owner_agent_id: uuid.UUID | None = None


class GoalChange(NewGoal):
    title: Annotated[wire.Text, Field(min_length=1, max_length=200)] | None = None  # type: ignore[assignment]


class NewProject(wire.Body):
    name: Name
    description: Description | None = None
    status: ProjectStatus | None = None
    goal_id: uuid.UUID | None = None
    goal_ids: Annotated[list[uuid.UUID], Field(max_length=20)] | None = None
    lead_agent_id: uuid.UUID | None = None
    workspace: Annotated[wire.Text, Field(max_length=1_000)] | None = None
    target_date: date | None = None


class ProjectChange(NewProject):
    name: Name | None = None  # type: ignore[assignment]
    archived: bool | None = None


class NewOperatorKey(wire.Body):
    name: Name
    expires_at: wire.Moment | None = None


class Nothing(wire.Body):
    """A body that says nothing; clients send `{}`."""


# --- companies -------------------------------------------------------------------------------


@router.get(
    "/companies", response=list[answers.Company], summary="The companies that the caller belongs to"
)
def list_companies(
    request: HttpRequest, limit: wire.Limit = wire.DEFAULT_PAGE, cursor: wire.Cursor | None = None
) -> HttpResponse:
    return wire.page(
        request,
        access.companies(wire.principal(request)),
        keys=("created_at", "id"),
        shape=lambda page: [shapes.company(row) for row in page],
        limit=limit,
        cursor=cursor,
    )


@router.post(
    "/companies", response={201: answers.Company}, summary="A new company; the caller owns it"
)
def create_company(request: HttpRequest, body: NewCompany) -> HttpResponse:
    caller = wire.principal(request)
    user_id = wire.user_only(caller)
    made = tenancy.create(
        name=body.name,
        description=body.description or "",
        prefix=body.issue_prefix or "",
        owner=User.objects.get(id=user_id),
        actor=caller.actor,
        now=timezone.now(),
    )
    return wire.answer(shapes.company(made), 201)


@router.get(
    "/companies/stats",
    response=dict[str, answers.CompanyCounts],
    summary="How many agents and issues each company has",
)
def company_stats(request: HttpRequest) -> HttpResponse:
    rows = access.companies(wire.principal(request)).order_by("name", "id")[: wire.MAX_PAGE]
    counted = (
        Company.objects.filter(id__in=[row.id for row in rows])
        .annotate(
            agents_count=Count("agents", distinct=True),
            issues_count=Count("issues", distinct=True),
        )
        .values_list("id", "agents_count", "issues_count")
    )
    return wire.answer(
        {str(one): {"agentCount": agents, "issueCount": issues} for one, agents, issues in counted}
    )


@router.get(
    "/companies/{company}", response=answers.Company, summary="One company, by UUID or prefix"
)
def get_company(request: HttpRequest, company: str) -> HttpResponse:
    return wire.answer(shapes.company(wire.company(request, company)))


@router.patch("/companies/{company}", response=answers.Company, summary="Change a company")
def change_company(request: HttpRequest, company: str, body: CompanyChange) -> HttpResponse:
    found = wire.company(request, company, "manage")
    changes = {name: value for name, value in body.given().items() if value is not None}
    if "description" in body.model_fields_set:
        changes["description"] = body.description or ""
    updated = tenancy.update(
        company=found, changes=changes, actor=wire.principal(request).actor, now=timezone.now()
    )
    return wire.answer(shapes.company(updated))


@router.post(
    "/companies/{company}/archive", response=answers.Company, summary="Take a company out of use"
)
def archive_company(
    request: HttpRequest, company: str, body: Nothing | None = None
) -> HttpResponse:
    found = wire.company(request, company, "manage")
    archived = tenancy.archive(
        company=found, actor=wire.principal(request).actor, now=timezone.now()
    )
    return wire.answer(shapes.company(archived))


@router.get(
    "/companies/{company}/members",
    response=list[answers.Member],
    summary="Who belongs to the company",
)
def list_members(request: HttpRequest, company: str) -> HttpResponse:
    found = wire.company(request, company)
    return wire.answer(
        [
            {
                "id": row.user_id,
                "userId": row.user_id,
                "name": row.user.name,
                "email": row.user.email,
                "role": row.role,
                "createdAt": row.created_at,
            }
            for row in tenancy.members(found)[: wire.MAX_PAGE]
        ]
    )


@router.get(
    "/companies/{company}/activity",
    response=list[answers.ActivityEntry],
    summary="Who did what, newest first",
)
def list_activity(
    request: HttpRequest,
    company: str,
    agentId: uuid.UUID | None = None,
    entityType: Annotated[wire.Text, Field(max_length=30)] = "",
    entityId: uuid.UUID | None = None,
    limit: wire.Limit = wire.DEFAULT_PAGE,
    cursor: wire.Cursor | None = None,
) -> HttpResponse:
    found = wire.company(request, company)
    rows = Activity.objects.for_company(found.id)
    if agentId is not None:
        rows = rows.filter(actor_type=Activity.ActorType.AGENT, actor_id=agentId)
    if entityType:
        rows = rows.filter(entity_type=entityType)
    if entityId is not None:
        rows = rows.filter(entity_id=entityId)
    return wire.page(
        request,
        rows,
        keys=("-occurred_at", "-id"),
        shape=lambda page: [shapes.activity(row) for row in page],
        limit=limit,
        cursor=cursor,
    )


# --- goals -----------------------------------------------------------------------------------


@router.get("/companies/{company}/goals", response=list[answers.Goal], summary="Goals")
def list_goals(
    request: HttpRequest,
    company: str,
    limit: wire.Limit = wire.DEFAULT_PAGE,
    cursor: wire.Cursor | None = None,
) -> HttpResponse:
    found = wire.company(request, company)
    return _list(request, Goal.objects.for_company(found.id), shapes.goal, limit, cursor)


@router.post("/companies/{company}/goals", response={201: answers.Goal}, summary="A new goal")
def create_goal(request: HttpRequest, company: str, body: NewGoal) -> HttpResponse:
    found = wire.company(request, company, "operate")
    fields = _present(_goal_fields(found.id, body.given()))
    made = goals.create_goal(
        company=found, actor=wire.principal(request).actor, now=timezone.now(), **fields
    )
    return wire.answer(shapes.goal(made), 201)


@router.get("/goals/{goal_id}", response=answers.Goal, summary="One goal")
def get_goal(request: HttpRequest, goal_id: uuid.UUID) -> HttpResponse:
    return wire.answer(shapes.goal(_find(request, Goal, goal_id)))


@router.patch("/goals/{goal_id}", response=answers.Goal, summary="Change a goal")
def change_goal(request: HttpRequest, goal_id: uuid.UUID, body: GoalChange) -> HttpResponse:
    found = _find(request, Goal, goal_id, "operate")
    updated = goals.update_goal(
        goal=found,
        changes=_goal_fields(found.company_id, body.given()),
        actor=wire.principal(request).actor,
        now=timezone.now(),
    )
    return wire.answer(shapes.goal(updated))


@router.delete(
    "/goals/{goal_id}", response=answers.Goal, summary="Delete a goal; what hangs on it stays"
)
def delete_goal(request: HttpRequest, goal_id: uuid.UUID) -> HttpResponse:
    found = _find(request, Goal, goal_id, "operate")
    shape = shapes.goal(found)
    goals.delete_goal(goal=found, actor=wire.principal(request).actor, now=timezone.now())
    return wire.answer(shape)


# --- projects --------------------------------------------------------------------------------


@router.get("/companies/{company}/projects", response=list[answers.Project], summary="Projects")
def list_projects(
    request: HttpRequest,
    company: str,
    limit: wire.Limit = wire.DEFAULT_PAGE,
    cursor: wire.Cursor | None = None,
) -> HttpResponse:
    found = wire.company(request, company)
    rows = Project.objects.for_company(found.id).select_related("goal")
    return _list(request, rows, shapes.project, limit, cursor)


@router.post(
    "/companies/{company}/projects", response={201: answers.Project}, summary="A new project"
)
def create_project(request: HttpRequest, company: str, body: NewProject) -> HttpResponse:
    given = body.given()
    found = wire.company(request, company, _needed(given))
    fields = _present(_project_fields(found.id, given))
    made = goals.create_project(
        company=found, actor=wire.principal(request).actor, now=timezone.now(), **fields
    )
    return wire.answer(shapes.project(made), 201)


@router.get("/projects/{project_id}", response=answers.Project, summary="One project")
def get_project(request: HttpRequest, project_id: uuid.UUID) -> HttpResponse:
    return wire.answer(shapes.project(_find(request, Project, project_id)))


@router.patch("/projects/{project_id}", response=answers.Project, summary="Change a project")
def change_project(
    request: HttpRequest, project_id: uuid.UUID, body: ProjectChange
) -> HttpResponse:
    given = body.given()
    found = _find(request, Project, project_id, _needed(given))
    archived = given.pop("archived", None)
    actor, now = wire.principal(request).actor, timezone.now()
    changes = _project_fields(found.company_id, given)
    if changes:
        found = goals.update_project(project=found, changes=changes, actor=actor, now=now)
    if archived is not None:
        found = goals.archive_project(project=found, archived=archived, actor=actor, now=now)
    return wire.answer(shapes.project(found))


@router.delete(
    "/projects/{project_id}", response=answers.Project, summary="Archive a project; its issues stay"
)
def archive_project(request: HttpRequest, project_id: uuid.UUID) -> HttpResponse:
    found = _find(request, Project, project_id, "operate")
    archived = goals.archive_project(
        project=found, actor=wire.principal(request).actor, now=timezone.now()
    )
    return wire.answer(shapes.project(archived))


# --- a person's own keys ---------------------------------------------------------------------


@router.get("/auth/get-session", response=answers.Session, summary="Who is signed in")
def get_session(request: HttpRequest) -> HttpResponse:
    user = User.objects.get(id=wire.user_only(wire.principal(request)))
    return wire.answer(
        {
            "session": {"userId": user.id},
            "user": {"id": user.id, "email": user.email, "name": user.name},
        }
    )


@router.get("/board-api-keys", response=list[answers.OperatorKey], summary="The caller's own keys")
def list_keys(request: HttpRequest) -> HttpResponse:
    user_id = wire.user_only(wire.principal(request))
    rows = OperatorKey.objects.filter(user_id=user_id, revoked_at=None)
    return wire.answer([_key(row) for row in rows.order_by("-created_at", "-id")[:100]])


@router.post(
    "/board-api-keys",
    response={201: answers.ShownOperatorKey},
    summary="A new key of one's own; shown this once",
)
def create_key(request: HttpRequest, body: NewOperatorKey) -> HttpResponse:
    user = User.objects.get(id=wire.user_only(wire.principal(request)))
    key, token = operator_keys.create(
        user=user, name=body.name, expires_at=body.expires_at, now=timezone.now()
    )
    return wire.answer({**_key(key), "token": token}, 201)


@router.delete(
    "/board-api-keys/{key_id}", response=answers.Ok, summary="Revoke one of one's own keys"
)
def revoke_key(request: HttpRequest, key_id: uuid.UUID) -> HttpResponse:
    user = User.objects.get(id=wire.user_only(wire.principal(request)))
    operator_keys.revoke(user=user, key_id=key_id, now=timezone.now())
    return wire.answer({"ok": True})


def _key(row: OperatorKey) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "prefix": f"pcb_{row.lookup}",
        "expiresAt": row.expires_at,
        "lastUsedAt": row.last_used_at,
        "createdAt": row.created_at,
    }


# --- shared ----------------------------------------------------------------------------------


def _list(
    request: HttpRequest, rows: Any, shape: Any, limit: int, cursor: str | None
) -> HttpResponse:
    def shaped(page: list[Any]) -> Iterable[Any]:
        return [shape(row) for row in page]

    return wire.page(
        request, rows, keys=("created_at", "id"), shape=shaped, limit=limit, cursor=cursor
    )


def _find(
    request: HttpRequest, model: type[T], row_id: uuid.UUID, action: access.Action = "view"
) -> T:
    caller = wire.principal(request)
    found = wire.in_companies(caller, model.objects.all()).filter(id=row_id).first()
    if found is None:
        raise NotFound(f"There is no such {model._meta.verbose_name}.")
    access.authorize(caller, action, found.company_id)
    return found


def _present(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _goal_fields(company_id: uuid.UUID, given: dict[str, Any]) -> dict[str, Any]:
    fields = _no_null(given, required=("title", "level", "status"))
    if "parent_id" in fields:
        parent = wire.one_of_company(Goal, company_id, fields.pop("parent_id"), "parentId")
        fields["parent"] = parent
    if "owner_agent_id" in fields:
        fields["owner_agent"] = _agent(company_id, fields.pop("owner_agent_id"), "ownerAgentId")
    return fields


def _project_fields(company_id: uuid.UUID, given: dict[str, Any]) -> dict[str, Any]:
    fields = _no_null(given, required=("name", "status"))
    several = fields.pop("goal_ids", None)
    if several:
        if len(several) > 1:
            raise Invalid("one_goal", "A project serves one goal.", field="goalIds")
        fields.setdefault("goal_id", several[0])
    if "goal_id" in fields:
        fields["goal"] = wire.one_of_company(Goal, company_id, fields.pop("goal_id"), "goalId")
    if "lead_agent_id" in fields:
        fields["lead_agent"] = _agent(company_id, fields.pop("lead_agent_id"), "leadAgentId")
    return fields


def _needed(given: dict[str, Any]) -> access.Action:
    """A folder on the server is what agents may write to, so that only an owner names one."""
    return "manage" if given.get("workspace") else "operate"


def _agent(company_id: uuid.UUID, value: uuid.UUID | None, field: str) -> Any:
    # The model of the floor above, by the foreign key that names it.
    model = Goal._meta.get_field("owner_agent").related_model
    return wire.one_of_company(model, company_id, value, field)


def _no_null(given: dict[str, Any], required: tuple[str, ...]) -> dict[str, Any]:
    """Null empties a text and means nothing for what must have a value."""
    fields = {k: v for k, v in given.items() if not (v is None and k in required)}
    for name in ("description", "workspace"):
        if name in fields and fields[name] is None:
            fields[name] = ""
    return fields
