"""The ground floor: who there is (users, members), what they share (companies, goals, projects,
secrets) and what was done (activity). Knows nothing of agents' work or money.

Read next: `access.py` (who may), `activity.py` (what happened), `live.py` (who hears of it).
"""

from __future__ import annotations

import uuid
from typing import ClassVar, Self, TypeVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Lower

from companies.ids import new_id

M = TypeVar("M", bound=models.Model)


class TenantQuerySet(models.QuerySet[M]):
    """Every query about a tenant's rows enters by this door."""

    def for_company(self, company_id: uuid.UUID) -> Self:
        return self.filter(company_id=company_id)


class UserManager(BaseUserManager["User"]):
    def create_user(self, email: str, password: str | None = None, **fields: object) -> User:
        user = self.model(email=email.strip().lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: object) -> User:
        return self.create_user(
            email, password, **{"is_staff": True, "is_superuser": True, **fields}
        )

    def get_by_natural_key(self, username: str | None) -> User:
        return self.get(email__iexact=username or "")


class User(AbstractBaseUser, PermissionsMixin):
    """A person. What they may do in a company is a `Membership`."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    email = models.EmailField(max_length=254, unique=True)
    name = models.CharField(max_length=120, blank=True)
    is_active = models.BooleanField(default=True)
    is_staff = models.BooleanField(default=False, help_text="May enter the data fixers' admin.")
    created_at = models.DateTimeField(auto_now_add=True)

    objects: ClassVar[UserManager] = UserManager()
    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    class Meta:
        ordering = ["email", "id"]
        constraints = [models.UniqueConstraint(Lower("email"), name="one_user_an_email")]

    def __str__(self) -> str:
        return self.name or self.email


class SignInLink(models.Model):
    """A one-time link; only the hash of its token is kept."""

    digest = models.CharField(primary_key=True, max_length=64)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="sign_in_links")
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.user} until {self.expires_at:%Y-%m-%d %H:%M}"


class Throttle(models.Model):
    """Attempts per key and window, shared by all instances. Swept when the window is over."""

    key = models.CharField(max_length=200)
    window_start = models.DateTimeField()
    count = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["key", "window_start"], name="one_throttle_a_window")
        ]

    def __str__(self) -> str:
        return f"{self.key}: {self.count}"


class Company(models.Model):
    class Status(models.TextChoices):
        ACTIVE = "active"
        PAUSED = "paused"
        ARCHIVED = "archived"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.CharField(max_length=120)
    description = models.TextField(blank=True, max_length=20_000)
    status = models.CharField(max_length=10, choices=Status, default=Status.ACTIVE)
    pause_reason = models.CharField(max_length=500, blank=True)
    issue_prefix = models.CharField(
        max_length=8,
        unique=True,
        validators=[RegexValidator(r"^[A-Z][A-Z0-9]{1,7}$", "Two to eight capitals or digits.")],
        help_text="Issues are numbered PREFIX-1, PREFIX-2, …",
    )
    max_concurrent_agents = models.PositiveSmallIntegerField(
        default=5, validators=[MinValueValidator(1), MaxValueValidator(1000)]
    )
    is_demo = models.BooleanField(default=False, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    members = models.ManyToManyField(User, through="Membership", related_name="companies")

    class Meta:
        verbose_name_plural = "companies"
        ordering = ["name", "id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(issue_prefix__regex=r"^[A-Z][A-Z0-9]{1,7}$"), name="issue_prefix_shape"
            ),
            models.CheckConstraint(
                condition=Q(max_concurrent_agents__gte=1), name="company_cap_positive"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    class Role(models.TextChoices):
        OWNER = "owner"
        OPERATOR = "operator"
        VIEWER = "viewer"

    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role, default=Role.OPERATOR)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TenantQuerySet["Membership"].as_manager()

    class Meta:
        ordering = ["created_at", "id"]
        constraints = [
            models.UniqueConstraint(fields=["company", "user"], name="one_membership_a_company")
        ]

    def __str__(self) -> str:
        return f"{self.user} · {self.role}"


class OperatorKey(models.Model):
    """A person's own API key `pcb_…`. The token is shown once; its hash stays."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=120)
    lookup = models.CharField(max_length=16, unique=True, editable=False)
    digest = models.CharField(max_length=64, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return f"{self.name} (pcb_{self.lookup}…)"


class Goal(models.Model):
    class Level(models.TextChoices):
        COMPANY = "company"
        TEAM = "team"
        AGENT = "agent"
        TASK = "task"

    class Status(models.TextChoices):
        PLANNED = "planned"
        ACTIVE = "active"
        ACHIEVED = "achieved"
        CANCELLED = "cancelled"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="goals")
    parent = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="children"
    )
    owner_agent = models.ForeignKey(
        "agents.Agent", null=True, blank=True, on_delete=models.SET_NULL, related_name="goals"
    )
    title = models.CharField(max_length=200)
    description = models.TextField(blank=True, max_length=20_000)
    level = models.CharField(max_length=10, choices=Level, default=Level.TASK)
    status = models.CharField(max_length=10, choices=Status, default=Status.PLANNED)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantQuerySet["Goal"].as_manager()

    class Meta:
        ordering = ["created_at", "id"]
        indexes = [models.Index(fields=["company", "created_at"], name="goal_by_company")]
        constraints = [
            models.CheckConstraint(
                condition=Q(parent__isnull=True) | ~Q(parent=F("id")), name="goal_not_own_parent"
            )
        ]

    def __str__(self) -> str:
        return self.title


class Project(models.Model):
    class Status(models.TextChoices):
        BACKLOG = "backlog"
        PLANNED = "planned"
        IN_PROGRESS = "in_progress"
        COMPLETED = "completed"
        CANCELLED = "cancelled"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="projects")
    goal = models.ForeignKey(
        Goal, null=True, blank=True, on_delete=models.SET_NULL, related_name="projects"
    )
    lead_agent = models.ForeignKey(
        "agents.Agent", null=True, blank=True, on_delete=models.SET_NULL, related_name="projects"
    )
    name = models.CharField(max_length=120)
    description = models.TextField(blank=True, max_length=20_000)
    status = models.CharField(max_length=12, choices=Status, default=Status.BACKLOG)
    workspace = models.CharField(
        max_length=1000,
        blank=True,
        help_text="A folder on the machine that runs the agents; empty: a fresh folder a run.",
    )
    target_date = models.DateField(null=True, blank=True)
    archived_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantQuerySet["Project"].as_manager()

    class Meta:
        ordering = ["created_at", "id"]
        indexes = [models.Index(fields=["company", "created_at"], name="project_by_company")]

    def __str__(self) -> str:
        return self.name


class Secret(models.Model):
    """A stored secret. Write-only in every interface; `secrets.py` seals and opens it."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="secrets")
    name = models.CharField(
        max_length=100,
        validators=[RegexValidator(r"^[A-Za-z_][A-Za-z0-9_.-]*$", "A name like OPENAI_API_KEY.")],
    )
    description = models.CharField(max_length=500, blank=True)
    sealed = models.BinaryField(editable=False)
    version = models.PositiveIntegerField(default=1, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantQuerySet["Secret"].as_manager()

    class Meta:
        ordering = ["name", "id"]
        constraints = [
            models.UniqueConstraint(fields=["company", "name"], name="one_secret_a_name")
        ]

    def __str__(self) -> str:
        return self.name


class Activity(models.Model):
    """Who did what when. Append-only, partitioned by month of `occurred_at`.

    Written in the transaction of the change itself, so that neither exists without the other.
    """

    class ActorType(models.TextChoices):
        USER = "user"
        AGENT = "agent"
        SYSTEM = "system"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    company = models.ForeignKey(Company, on_delete=models.DO_NOTHING, related_name="+")
    occurred_at = models.DateTimeField()
    actor_type = models.CharField(max_length=6, choices=ActorType)
    actor_id = models.UUIDField(null=True)
    actor_name = models.CharField(max_length=120, blank=True)
    run_id = models.UUIDField(null=True)
    action = models.CharField(max_length=60)
    entity_type = models.CharField(max_length=30)
    entity_id = models.UUIDField()
    entity_name = models.CharField(max_length=200, blank=True)
    details = models.JSONField(default=dict)

    objects = TenantQuerySet["Activity"].as_manager()

    class Meta:
        verbose_name_plural = "activity"
        ordering = ["-occurred_at", "-id"]

    def __str__(self) -> str:
        return f"{self.actor_name} {self.action} {self.entity_name}"


class IdempotencyRecord(models.Model):
    """The answer to a POST that carried an Idempotency-Key, for replay. Kept for a day."""

    principal = models.CharField(max_length=80)
    route = models.CharField(max_length=300)
    key = models.CharField(max_length=200)
    fingerprint = models.CharField(max_length=64)
    status_code = models.PositiveSmallIntegerField(null=True)
    body = models.BinaryField(null=True)
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["principal", "route", "key"], name="one_answer_an_idempotency_key"
            )
        ]

    def __str__(self) -> str:
        return f"{self.route} {self.key}"


# Django finds models by this module.
from companies.cli_login_models import CliLogin as CliLogin  # noqa: E402
from companies.key_models import SealingKey as SealingKey  # noqa: E402
from companies.key_models import SecretRead as SecretRead  # noqa: E402
from companies.seal_models import Seal as Seal  # noqa: E402
from companies.seal_models import Sealer as Sealer  # noqa: E402
from companies.second_factor_models import RecoveryCode as RecoveryCode  # noqa: E402
from companies.second_factor_models import SecondFactor as SecondFactor  # noqa: E402
