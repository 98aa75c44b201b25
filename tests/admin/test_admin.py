"""The data fixers' admin: everything renders, nothing secret shows, history stays."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission
from django.contrib.messages import get_messages
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from agents.connection_models import AgentFallback, ProviderBucket, ProviderConnection
from agents.meter_models import AgentTally, Counter, ProcessReport
from agents.models import Agent, AgentKey, Beacon, HeartbeatRun, RunEvent
from agents.revision_models import AgentRevision
from agents.wake_models import WakeKey
from billing.models import (
    ArchivedPartition,
    BooksCheck,
    Budget,
    BudgetIncident,
    CostEvent,
    DayCost,
    ModelPrice,
    Reservation,
    Spend,
)
from companies import activity, partitions, secrets
from companies.cli_login_models import CliLogin
from companies.models import (
    Activity,
    Company,
    IdempotencyRecord,
    Membership,
    OperatorKey,
    RecoveryCode,
    Seal,
    Sealer,
    SecondFactor,
    SignInLink,
    Throttle,
    User,
)
from issues.approval_models import Approval, ApprovalComment, ApprovalIssue
from issues.document_models import (
    Document,
    DocumentRevision,
    IssueLabel,
    IssueMark,
    Label,
    WorkProduct,
)
from issues.models import Checkout, InboxMark, Issue, SavedView, Workspace, Worktree
from paperclip.data_site import FLOORS
from tests import factories

pytestmark = pytest.mark.django_db

OURS = ("companies", "agents", "issues", "billing")
MODELS = sorted(
    (m for m in admin.site._registry if m._meta.app_label in OURS), key=lambda m: m._meta.label
)
EDITABLE = {"User", "Company", "Membership", "Goal", "Project", "Agent", "Issue"}
SECRET = "s3cr3t-" + "f" * 40


@pytest.fixture
def root() -> User:
    return factories.superuser()


@pytest.fixture
def client(root: User) -> Client:
    client = Client()
    client.force_login(root)
    return client


@pytest.fixture
def world(acme: Company, olga: User, ada: Agent, bo: Agent, now: datetime) -> Company:
    """A row of every kind, with something secret wherever something secret can be."""
    partitions.ensure_all(now=now)
    project = factories.project(acme)
    factories.goal(acme)
    ada.adapter_config = {"env": {"TOKEN": SECRET}, "model": "m", "headers": {"X": SECRET}}
    ada.save()
    issue = factories.issue(acme, assignee=ada, project=project)
    factories.blocker(issue, by=factories.issue(acme))
    run = factories.running(ada, issue, token_digest=SECRET)
    factories.checkout(issue, ada, run)
    factories.comment(issue, author=olga)
    factories.interaction(issue, asked_by=ada)
    factories.hold(bo)
    factories.worker()
    Beacon.objects.create(name="canary", beat_at=now)
    RunEvent.objects.create(
        run_id=run.id,
        company_id=acme.id,
        run_created_at=run.created_at,
        seq=1,
        epoch=1,
        kind="text",
        text="Hello",
        at=now,
    )
    actor = activity.Actor("user", olga.id, "Olga")
    secrets.put(company=acme, name="API_KEY", value=SECRET, actor=actor, now=now)
    key: dict[str, Any] = {"name": "Key", "digest": SECRET}
    OperatorKey.objects.create(user=olga, lookup="lookup1", **key)
    AgentKey.objects.create(company=acme, agent=ada, lookup="lookup2", **key)
    SignInLink.objects.create(digest=SECRET, user=olga, expires_at=now)
    factor = SecondFactor.objects.create(user=olga, sealed=SECRET.encode(), created_at=now)
    RecoveryCode.objects.create(factor=factor, digest=SECRET, created_at=now)
    Throttle.objects.create(key="sign-in:olga", window_start=now, count=3)
    IdempotencyRecord.objects.create(
        principal="user:1", route="/x", key="k", fingerprint=SECRET, body=SECRET.encode()
    )
    connection = ProviderConnection.objects.create(company=acme, name="Main", kind="openai")
    ProviderBucket.objects.create(
        connection=connection, requests_left=1, tokens_left=2, refilled_at=now
    )
    AgentFallback.objects.create(agent=ada, position=1, connection=connection)
    config = {"adapter_config": {"env": {"TOKEN": SECRET}}}
    AgentRevision.objects.create(
        company=acme, agent=ada, before=config, after=config, changed=["x"], created_at=now
    )
    CliLogin.objects.create(
        digest=SECRET, key_lookup="lookup3", key_digest=SECRET, expires_at=now, created_at=now
    )
    Sealer.objects.create(cluster="1", at_row=acme.id, caught_up_at=now)
    ids = {"first_row": acme.id, "last_row": acme.id, "row_ids": [acme.id], "row_moments": [now]}
    Seal.objects.create(company=acme, sequence=1, count=1, sealed_at=now, **ids)
    reader = secrets.Reader(run_id=run.id)
    secrets.reveal(company_id=acme.id, names=["API_KEY"], reader=reader, now=now)
    Counter.objects.create(name="runs", label="ok", value=3)
    AgentTally.objects.create(company=acme, agent=ada, day=now.date(), name="saved", reason="x")
    ProcessReport.objects.create(instance="here", kind="web", pid=1, at=now)
    WakeKey.objects.create(company=acme, agent=ada, key="key:1", run=run)
    BooksCheck.objects.update_or_create(id=1, defaults={"checked_at": now, "proved_at": now})
    _papers(acme, issue, olga, now)
    _money(acme, ada, run, now)
    return acme


def _papers(acme: Company, issue: Issue, olga: User, now: datetime) -> None:
    both = {"created_at": now, "updated_at": now}
    document = Document.objects.create(company=acme, issue=issue, key="plan", **both)
    DocumentRevision.objects.create(company=acme, document=document, number=1, created_at=now)
    WorkProduct.objects.create(company=acme, issue=issue, type="pr", title="A change", **both)
    project = acme.projects.create(name="Barn")
    Workspace.objects.create(company=acme, project=project, **both)
    Worktree.objects.create(
        company=acme, project=project, issue=issue, repository="/srv/barn", path="/srv/tree",
        branch="ACM-1", created_at=now, last_used_at=now, looked_at=now,
    )  # fmt: skip
    label = Label.objects.create(company=acme, name="bug", **both)
    IssueLabel.objects.create(company=acme, issue=issue, label=label)
    IssueMark.objects.create(company=acme, issue=issue, user=olga, read_at=now)
    InboxMark.objects.create(company=acme, user=olga, ref=issue.id, marked_at=now)
    SavedView.objects.create(company=acme, user=olga, name="Mine", created_at=now)
    payload = {"adapterConfig": {"env": {"TOKEN": SECRET}}}
    approval = Approval.objects.create(company=acme, payload=payload, **both)
    ApprovalIssue.objects.create(company=acme, approval=approval, issue=issue)
    ApprovalComment.objects.create(
        company=acme, approval=approval, author_user=olga, body="Yes?", created_at=now
    )


def _money(acme: Company, ada: Agent, run: HeartbeatRun, now: datetime) -> None:
    CostEvent.objects.create(
        company=acme,
        agent=ada,
        run_id=run.id,
        provider="p",
        model="m",
        cost_micros=5,
        cost_status="reported",
        occurred_at=now,
        recorded_at=now,
    )
    ModelPrice.objects.create(
        company=acme, model="m", input_pico=1, output_pico=2, effective_at=now
    )
    budget = Budget.objects.create(
        company=acme, scope="agent", scope_id=ada.id, limit_micros=1_000_000
    )
    BudgetIncident.objects.create(
        company=acme,
        budget=budget,
        period_start=now.date(),
        percent=50,
        spent_micros=1,
        limit_micros=2,
        created_at=now,
    )
    Reservation.objects.create(
        company=acme,
        agent=ada,
        run_id=run.id,
        kind="call",
        granted_micros=1,
        open_micros=1,
        granted_at=now,
    )
    Spend.objects.create(
        company=acme,
        scope="agent",
        scope_id=ada.id,
        window="month",
        period_start=now.date().replace(day=1),
        updated_at=now,
    )
    DayCost.objects.create(
        company=acme, day=now.date(), agent_id=ada.id, provider="p", model="m", last_at=now
    )
    ArchivedPartition.objects.create(
        table="t", month=now.date(), state="exported", created_at=now, updated_at=now
    )


def url(model: type[Model], what: str, *args: object) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{what}", args=args)


def refuse_secrets(html: str) -> None:
    assert SECRET not in html
    assert SECRET.encode().hex() not in html


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m._meta.label)
def test_every_list_shows_its_rows(model: type[Model], world: Company, client: Client) -> None:
    assert model._default_manager.exists(), "the world lacks a row of this kind"
    answer = client.get(url(model, "changelist"))
    assert answer.status_code == 200
    assert answer.context["cl"].result_count > 0
    refuse_secrets(answer.content.decode())


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m._meta.label)
def test_every_search_takes_anything(model: type[Model], world: Company, client: Client) -> None:
    for query in ("zzz", str(uuid.uuid4()), "a'b\"%_\\", "é" * 300, "7", "a\x00b"):
        assert client.get(url(model, "changelist"), {"q": query}).status_code == 200, query


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m._meta.label)
def test_every_row_has_its_page(model: type[Model], world: Company, client: Client) -> None:
    row = model._default_manager.first()
    assert row is not None
    answer = client.get(url(model, "change", row.pk))
    if model is SignInLink:
        assert answer.status_code == 403  # its address would be its hash
        return
    assert answer.status_code == 200
    html = answer.content.decode()
    if model is not User:
        assert "argon2" not in html
    refuse_secrets(html)


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m._meta.label)
def test_history_can_only_be_read(model: type[Model], world: Company, client: Client) -> None:
    row = model._default_manager.first()
    assert row is not None
    may_edit = model.__name__ in EDITABLE
    if model is not Throttle:
        assert client.get(url(model, "delete", row.pk)).status_code == 403
    may_add = model in (User, Membership)
    assert client.get(url(model, "add")).status_code == (200 if may_add else 403)
    if not may_edit:
        assert client.post(url(model, "change", row.pk), {}).status_code == 403


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m._meta.label)
def test_every_list_has_a_search_and_says_what_it_shows(model: type[Model]) -> None:
    model_admin = admin.site._registry[model]
    assert model_admin.search_fields
    assert len(model_admin.list_display) > 1


def test_all_our_models_are_there() -> None:
    from django.apps import apps

    missing = {
        model._meta.label
        for app in OURS
        for model in apps.get_app_config(app).get_models()
        if model not in admin.site._registry
    }
    assert missing == {"billing.CostKey"}  # its composite key has no page


@pytest.mark.parametrize(
    "make",
    [
        lambda acme, ada, n: factories.issue(acme, f"I{n}", assignee=ada),
        lambda acme, ada, n: factories.run(ada, factories.issue(acme, assignee=ada)),
        lambda acme, ada, n: factories.comment(factories.issue(acme), author=ada),
        lambda acme, ada, n: factories.agent(acme),
        lambda acme, ada, n: factories.checkout(factories.issue(acme), ada),
        lambda acme, ada, n: factories.interaction(factories.issue(acme), asked_by=ada),
        lambda acme, ada, n: factories.hold(factories.agent(acme)),
        lambda acme, ada, n: factories.member(acme, factories.user(f"U{n}")),
    ],
)
def test_a_list_costs_as_many_queries_for_30_rows_as_for_one(
    make: Any, acme: Company, ada: Agent, client: Client, django_assert_max_num_queries
) -> None:
    model = type(make(acme, ada, 0))
    client.get(url(model, "changelist"))
    for n in range(1, 30):
        make(acme, ada, n)
    with django_assert_max_num_queries(9):
        client.get(url(model, "changelist"))


# --- changes go through the verbs --------------------------------------------------------------


def form_of(client: Client, page: str) -> dict[str, Any]:
    """The values that the page's form would send."""
    form = client.get(page).context["adminform"].form
    data = {name: form[name].value() for name in form.fields}
    data = {name: value for name, value in data.items() if value is not None}
    for inline in client.get(page).context["inline_admin_formsets"]:
        prefix = inline.formset.prefix
        data |= {f"{prefix}-TOTAL_FORMS": 0, f"{prefix}-INITIAL_FORMS": 0}
    return data


def test_an_issue_is_edited_by_the_boards_verb(issue: Issue, client: Client, root: User) -> None:
    page = url(Issue, "change", issue.pk)
    answer = client.post(page, form_of(client, page) | {"title": "Repaired"})
    assert answer.status_code == 302
    issue.refresh_from_db()
    row = Activity.objects.get(action="issue.updated")
    assert (issue.title, issue.version, row.actor_id) == ("Repaired", 2, root.id)


def test_an_agent_is_edited_by_the_rosters_verb(ada: Agent, client: Client) -> None:
    page = url(Agent, "change", ada.pk)
    answer = client.post(page, form_of(client, page) | {"title": "Chair"})
    assert answer.status_code == 302
    ada.refresh_from_db()
    assert (ada.title, ada.version) == ("Chair", 2)
    assert Activity.objects.filter(action="agent.updated").exists()


def test_a_company_is_edited_by_its_verb(acme: Company, client: Client) -> None:
    page = url(Company, "change", acme.pk)
    client.post(page, form_of(client, page) | {"max_concurrent_agents": 9})
    acme.refresh_from_db()
    assert acme.max_concurrent_agents == 9
    assert Activity.objects.filter(action="company.updated").exists()


def test_a_refusal_is_told_and_nothing_changes(acme: Company, olga: User, client: Client) -> None:
    membership = Membership.objects.get(user=olga)
    page = url(Membership, "change", membership.pk)
    answer = client.post(page, {"role": "viewer"})
    assert answer.status_code == 302
    assert "needs an owner" in str(next(iter(get_messages(answer.wsgi_request))))
    membership.refresh_from_db()
    assert membership.role == "owner"


def test_a_member_is_added_by_the_verb(acme: Company, oscar: User, client: Client) -> None:
    data = {"company": acme.pk, "user": oscar.pk, "role": "viewer"}
    assert client.post(url(Membership, "add"), data).status_code == 302
    assert Membership.objects.get(user=oscar, company=acme).role == "viewer"
    assert Activity.objects.filter(action="member.added").exists()


def test_a_person_is_added_by_e_mail(client: Client) -> None:
    data = {
        "email": "New@Example.com",
        "name": "New",
        "usable_password": "true",
        "password1": "a long enough phrase",
        "password2": "a long enough phrase",
    }
    assert client.post(url(User, "add"), data).status_code == 302
    assert User.objects.get(email__iexact="new@example.com").check_password("a long enough phrase")


def act(client: Client, row: Model, action: str, **asked: str) -> None:
    """Choose an action, read what it is about to do, and say yes."""
    wish = {"action": action, "_selected_action": [str(row.pk)]}
    page = client.post(url(type(row), "changelist"), wish)
    assert page.status_code == 200
    assert str(row.pk) in page.content.decode()
    answer = client.post(url(type(row), "changelist"), wish | {"confirmed": "1"} | asked)
    assert answer.status_code == 302, answer.content.decode()


def test_nothing_is_done_before_somebody_has_confirmed_it(ada: Agent, client: Client) -> None:
    wish = {"action": "pause", "_selected_action": [str(ada.pk)]}
    page = client.post(url(Agent, "changelist"), wish).content.decode()
    assert "Pause, for 1 agent" in page
    assert not ada.holds.exists()


def test_an_action_leaves_a_line_of_activity(
    ada: Agent, acme: Company, root: User, client: Client
) -> None:
    act(client, ada, "pause")
    row = Activity.objects.get(company=acme, action="agent.held")
    assert row.actor_id == root.id


def test_a_correction_is_a_booking_of_its_own(world: Company, client: Client) -> None:
    event = CostEvent.objects.get()
    asked = {"dollars": "-0.000002", "note": "Billed twice", "key": str(uuid.uuid4())}
    act(client, event, "correct", **asked)
    event.refresh_from_db()
    assert event.cost_micros == 5
    made = CostEvent.objects.exclude(id=event.id).get()
    assert (made.cost_micros, made.reverses_id, made.note) == (-2, event.id, "Billed twice")
    assert Activity.objects.filter(action="cost.corrected").count() == 1
    # The same form once more is the same correction.
    act(client, event, "correct", **asked)
    assert CostEvent.objects.count() == 2


def test_a_correction_without_a_reason_is_asked_again(world: Company, client: Client) -> None:
    wish = {"action": "correct", "_selected_action": [str(CostEvent.objects.get().pk)]}
    answer = client.post(
        url(CostEvent, "changelist"), wish | {"confirmed": "1", "dollars": "1", "note": ""}
    )
    assert "This field is required." in answer.content.decode()
    assert CostEvent.objects.count() == 1


def test_who_may_only_look_is_offered_no_repair(issue: Issue, ada: Agent) -> None:
    watcher = factories.user("Wanda", is_staff=True)
    watcher.user_permissions.add(Permission.objects.get(codename="view_heartbeatrun"))
    run = factories.run(ada, issue)
    client = Client()
    client.force_login(watcher)
    client.post(
        url(HeartbeatRun, "changelist"),
        {"action": "cancel", "_selected_action": [str(run.pk)], "confirmed": "1"},
    )
    run.refresh_from_db()
    assert run.status == "queued"


def test_groups_stand_in_the_order_of_the_floors(client: Client) -> None:
    page = client.get(reverse("admin:index")).content.decode()
    places = [page.index(f"/admin/{app}/") for app in FLOORS]
    assert places == sorted(places)


def test_agents_are_paused_and_resumed(ada: Agent, client: Client) -> None:
    act(client, ada, "pause")
    assert list(ada.holds.values_list("reason", flat=True)) == ["operator"]
    act(client, ada, "resume")
    assert not ada.holds.exists()


def test_a_run_is_cancelled_and_run_again(issue: Issue, ada: Agent, client: Client) -> None:
    run = factories.run(ada, issue)
    act(client, run, "cancel")
    run.refresh_from_db()
    assert run.status == "cancelled"
    act(client, run, "retry")
    assert HeartbeatRun.objects.get(status="queued").retry_of == run


def test_a_checkout_is_released_by_force(acme: Company, ada: Agent, client: Client) -> None:
    issue = factories.issue(acme, status="in_progress", assignee=ada)
    held = factories.checkout(issue, ada)
    act(client, held, "release")
    issue.refresh_from_db()
    assert issue.status == "todo"
    assert not Checkout.objects.filter(released_at=None).exists()


def test_an_open_issue_is_not_archived(issue: Issue, client: Client) -> None:
    act(client, issue, "archive")
    issue.refresh_from_db()
    assert issue.archived_at is None


def test_operators_are_not_let_in(olga: User) -> None:
    client = Client()
    client.force_login(olga)
    assert client.get(url(Issue, "changelist")).status_code == 302


def test_date_hierarchies_reach_back(world: Company, client: Client, now: datetime) -> None:
    factories.issue(world, now=now - timedelta(days=400))
    answer = client.get(url(Issue, "changelist"), {"created_at__year": now.year})
    assert answer.status_code == 200
