"""The form of a project's workspace. It checks shapes; `workspaces.py` has the last word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from companies.errors import Refusal
from companies.models import Project
from issues.models import Workspace

CODE = {"class": "code", "autocomplete": "off", "spellcheck": "false"}


class WorkspaceForm(forms.Form):
    """Everything that is set about where agents work."""

    folder = forms.CharField(
        required=False,
        max_length=1000,
        help_text="On the machine that runs the agents. Empty: each agent has one of its own.",
        widget=forms.TextInput(attrs={**CODE, "placeholder": "/srv/app"}),
    )
    is_repository = forms.BooleanField(
        label="It is a Git repository: give each issue a work tree and a branch of its own",
        required=False,
    )
    base_branch = forms.CharField(
        label="Start from branch",
        required=False,
        max_length=120,
        help_text="Empty: the branch that the repository is on.",
        widget=forms.TextInput(attrs={**CODE, "placeholder": "main"}),
    )
    branch_template = forms.CharField(
        label="Name of an issue's branch",
        required=False,
        max_length=120,
        help_text="With {identifier} and, if you like, {slug}: the title in short.",
        widget=forms.TextInput(attrs=CODE),
    )
    setup_command = forms.CharField(
        label="Set-up command",
        required=False,
        max_length=50_000,
        help_text="One argument a line, the program first; no shell. Run once in a new work tree.",
        widget=forms.Textarea(attrs={**CODE, "rows": 4, "placeholder": "npm\nci"}),
    )
    clean_up = forms.ChoiceField(label="Clean up", choices=Workspace.CleanUp.choices)

    def __init__(
        self, project: Project, given: Workspace | None, data: Mapping[str, Any] | None = None
    ) -> None:
        shown = given or Workspace()
        initial = {
            "folder": project.workspace,
            "is_repository": given is not None,
            "base_branch": shown.base_branch,
            "branch_template": shown.branch_template,
            "setup_command": "\n".join(shown.setup_command),
            "clean_up": shown.clean_up,
        }
        super().__init__(data, initial=initial)

    def wish(self) -> dict[str, Any]:
        """The clean values as `workspaces.save` takes them."""
        values = dict(self.cleaned_data)
        lines = values["setup_command"].replace("\r\n", "\n").split("\n")
        values["setup_command"] = [line for line in lines if line]
        return values

    def complain(self, refusal: Refusal) -> None:
        """Put a refusal beside the field that it is about."""
        field = {"workspace": "folder"}.get(refusal.field, refusal.field)
        self.add_error(field if field in self.fields else None, refusal.message)
