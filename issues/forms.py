"""Forms of the board. They check shapes; `board.py` has the rules and the last word."""

from __future__ import annotations

import uuid
from typing import Any

from django import forms

from agents.models import Agent
from companies.models import Goal, Project, User
from issues.choices import Choices
from issues.models import Priority

STATUSES = (("todo", "To do"), ("backlog", "Backlog"))
NOBODY = ("", "Nobody")
NONE = ("", "None")


def assignees(choices: Choices) -> list[Any]:
    """Agents first, then people, as the groups of one select."""
    return [
        NOBODY,
        ("Agents", [(f"agent:{key}", name) for key, name in choices.agents]),
        ("People", [(f"user:{key}", name) for key, name in choices.people]),
    ]


def assignee(value: str) -> dict[str, Agent | User | None]:
    """A select's value as the fields of an issue. The verb checks that they are the company's."""
    kind, _, key = value.partition(":")
    found: dict[str, Agent | User | None] = {"assignee_agent": None, "assignee_user": None}
    if kind == "agent":
        found["assignee_agent"] = Agent.objects.filter(id=uuid.UUID(key)).first()
    elif kind == "user":
        found["assignee_user"] = User.objects.filter(id=uuid.UUID(key)).first()
    return found


class NewIssueForm(forms.Form):
    title = forms.CharField(
        max_length=300,
        widget=forms.TextInput(
            attrs={
                "class": "title-input",
                "placeholder": "What should be done?",
                "autofocus": True,
                "autocomplete": "off",
            }
        ),
    )
    description = forms.CharField(
        required=False,
        max_length=100_000,
        widget=forms.Textarea(
            attrs={
                "rows": 8,
                "placeholder": "What a good result looks like, and what to keep in mind. Markdown.",
            }
        ),
    )
    assignee = forms.ChoiceField(required=False)
    priority = forms.ChoiceField(
        choices=[(name, name.capitalize()) for name in Priority.labels], initial="medium"
    )
    project = forms.ChoiceField(required=False)
    goal = forms.ChoiceField(required=False)
    status = forms.ChoiceField(
        choices=STATUSES,
        initial="todo",
        help_text="To do wakes the assigned agent at once; backlog lets it lie.",
    )
    parent = forms.CharField(required=False, max_length=24, widget=forms.HiddenInput)

    def __init__(self, choices: Choices, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._select("assignee", assignees(choices))
        self._select("project", [NONE, *choices.projects])
        self._select("goal", [NONE, *choices.goals])

    def _select(self, name: str, choices: list[Any]) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        field.choices = choices

    def fields_of_issue(self) -> dict[str, Any]:
        """What `board.create` takes, objects in place of ids."""
        data = self.cleaned_data
        return {
            "title": data["title"],
            "description": data["description"],
            "status": data["status"],
            "priority": data["priority"],
            **assignee(data["assignee"]),
            "project": Project.objects.filter(id=data["project"]).first()
            if data["project"]
            else None,
            "goal": Goal.objects.filter(id=data["goal"]).first() if data["goal"] else None,
        }
