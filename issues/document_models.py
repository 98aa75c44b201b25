"""What work leaves behind on an issue: documents with revisions, work products, labels; and what
a person has seen of it. Imported by `models.py`; the verbs are in `documents.py` and `marks.py`.
"""

from __future__ import annotations

from django.core.validators import RegexValidator
from django.db import models
from django.db.models.functions import Lower

from agents.models import Agent, HeartbeatRun
from companies.ids import new_id
from companies.models import Company, TenantQuerySet, User


class Document(models.Model):
    """A text that belongs to an issue, under a key such as `plan`. Every write is a revision."""

    class Format(models.TextChoices):
        MARKDOWN = "markdown"
        TEXT = "text"
        JSON = "json"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="+")
    issue = models.ForeignKey("issues.Issue", on_delete=models.CASCADE, related_name="documents")
    key = models.CharField(
        max_length=80,
        validators=[RegexValidator(r"^[a-z0-9][a-z0-9._-]*$", "Lower case letters and digits.")],
    )
    title = models.CharField(max_length=300, blank=True)
    format = models.CharField(max_length=10, choices=Format, default=Format.MARKDOWN)
    body = models.TextField(blank=True)
    revision = models.PositiveIntegerField(default=1, editable=False)
    created_by_user = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_by_agent = models.ForeignKey(
        Agent, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    updated_by_user = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    updated_by_agent = models.ForeignKey(
        Agent, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    locked_at = models.DateTimeField(null=True, blank=True)
    locked_by_user = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    locked_by_agent = models.ForeignKey(
        Agent, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    objects = TenantQuerySet["Document"].as_manager()

    class Meta:
        ordering = ["key", "id"]
        constraints = [models.UniqueConstraint(fields=["issue", "key"], name="one_document_a_key")]

    def __str__(self) -> str:
        return self.title or self.key


class DocumentRevision(models.Model):
    """A document as it was once. Never changed; restoring writes a new one."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="+")
    document = models.ForeignKey(Document, on_delete=models.CASCADE, related_name="revisions")
    number = models.PositiveIntegerField()
    title = models.CharField(max_length=300, blank=True)
    format = models.CharField(max_length=10, choices=Document.Format)
    body = models.TextField(blank=True)
    change_summary = models.CharField(max_length=500, blank=True)
    created_by_user = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_by_agent = models.ForeignKey(
        Agent, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    run = models.ForeignKey(
        HeartbeatRun, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField()

    objects = TenantQuerySet["DocumentRevision"].as_manager()

    class Meta:
        ordering = ["-number", "id"]
        constraints = [
            models.UniqueConstraint(fields=["document", "number"], name="one_revision_a_number")
        ]

    def __str__(self) -> str:
        return f"{self.document_id} {self.number}"


class WorkProduct(models.Model):
    """Something that came out of an issue and lives elsewhere: a pull request, a deployment."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="+")
    issue = models.ForeignKey(
        "issues.Issue", on_delete=models.CASCADE, related_name="work_products"
    )
    type = models.CharField(max_length=40)
    provider = models.CharField(max_length=60, blank=True)
    external_id = models.CharField(max_length=200, blank=True)
    title = models.CharField(max_length=300)
    url = models.CharField(max_length=2_000, blank=True)
    status = models.CharField(max_length=40, default="active")
    review_state = models.CharField(max_length=40, default="none")
    is_primary = models.BooleanField(default=False)
    summary = models.TextField(blank=True, max_length=20_000)
    metadata = models.JSONField(null=True, blank=True)
    created_by_run = models.ForeignKey(
        HeartbeatRun, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    objects = TenantQuerySet["WorkProduct"].as_manager()

    class Meta:
        ordering = ["created_at", "id"]
        indexes = [models.Index(fields=["issue", "created_at"], name="product_by_issue")]

    def __str__(self) -> str:
        return self.title


class Label(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="labels")
    name = models.CharField(max_length=60)
    color = models.CharField(
        max_length=7,
        default="#64748b",
        validators=[RegexValidator(r"^#[0-9a-fA-F]{6}$", "A colour such as #cc0000.")],
    )
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    objects = TenantQuerySet["Label"].as_manager()

    class Meta:
        ordering = ["name", "id"]
        constraints = [
            models.UniqueConstraint("company", Lower("name"), name="one_label_a_name"),
        ]

    def __str__(self) -> str:
        return self.name


class IssueLabel(models.Model):
    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="+")
    issue = models.ForeignKey("issues.Issue", on_delete=models.CASCADE, related_name="labelled")
    label = models.ForeignKey(Label, on_delete=models.CASCADE, related_name="labelled")

    objects = TenantQuerySet["IssueLabel"].as_manager()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["issue", "label"], name="one_label_once_an_issue")
        ]

    def __str__(self) -> str:
        return str(self.label)


class IssueMark(models.Model):
    """What one person did with an issue in their own inbox: read it, put it away."""

    company = models.ForeignKey(Company, on_delete=models.CASCADE, related_name="+")
    issue = models.ForeignKey("issues.Issue", on_delete=models.CASCADE, related_name="marks")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    read_at = models.DateTimeField(null=True, blank=True)
    archived_at = models.DateTimeField(null=True, blank=True)

    objects = TenantQuerySet["IssueMark"].as_manager()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["issue", "user"], name="one_mark_a_person_and_issue")
        ]

    def __str__(self) -> str:
        return f"{self.user_id} {self.issue_id}"
