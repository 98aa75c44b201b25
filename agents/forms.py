"""The form of an agent. It checks shapes; `roster.py` has the rules and the last word."""

from __future__ import annotations

from typing import Any

from django import forms

from agents import loop_fields
from agents.models import Agent

LINE = {"autocomplete": "off"}


class AgentForm(forms.Form):
    """Everything about an agent but its adapter's own configuration."""

    name = forms.CharField(max_length=80, widget=forms.TextInput(attrs=LINE))
    title = forms.CharField(
        max_length=120, required=False, help_text="Its job, such as “Backend engineer”."
    )
    reports_to = forms.ChoiceField(required=False)
    instructions = forms.CharField(
        required=False,
        max_length=100_000,
        widget=forms.Textarea(attrs={"rows": 6}),
        help_text="What it should always keep in mind. Sent with every run, word for word.",
    )
    on_finish = forms.ChoiceField(
        label="After its answer",
        choices=[("in_review", "The issue goes to review"), ("done", "The issue is done")],
        initial="in_review",
        help_text="Unless it sets a status itself.",
    )
    heartbeat_enabled = forms.BooleanField(
        label="Wake it regularly", required=False, help_text="Also when nothing was assigned to it."
    )
    interval_seconds = forms.IntegerField(
        label="Every (seconds)", initial=3600, min_value=30, max_value=604_800, required=False
    )
    wake_on_demand = forms.BooleanField(
        label="Wake it when it is assigned, called or answered", required=False, initial=True
    )
    max_concurrent_runs = forms.IntegerField(
        label="Runs at the same time", initial=1, min_value=1, max_value=100
    )
    max_daily_runs = forms.IntegerField(label="Runs a day at most", required=False, min_value=1)

    def __init__(self, managers: list[tuple[str, str]], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["reports_to"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", "Nobody"), *managers]
        self.fields |= loop_fields.fields()

    @staticmethod
    def of(agent: Agent) -> dict[str, Any]:
        """Initial values from an agent."""
        values = {
            name: getattr(agent, name) for name in AgentForm.base_fields if name != "reports_to"
        }
        own = loop_fields.shown(agent.loop_limits)
        return values | own | {"reports_to": str(agent.reports_to_id or "")}

    @property
    def limits(self) -> list[forms.BoundField]:
        """The limits of the loop breaker, which most people leave alone."""
        return [self[name] for name in loop_fields.NAMES]

    @property
    def limits_unfold(self) -> bool:
        """Whether one of them has something to say."""
        return any(bound.errors or bound.initial is not None for bound in self.limits)

    def fields_of_agent(self, company_id: Any) -> dict[str, Any]:
        """What `roster.hire` and `roster.update` take."""
        data = dict(self.cleaned_data)
        data["loop_limits"] = loop_fields.taken(data)
        manager = data.pop("reports_to")
        data["reports_to"] = (
            Agent.objects.for_company(company_id).filter(id=manager).first() if manager else None
        )
        data["interval_seconds"] = data["interval_seconds"] or 3600
        return data
