"""The form of a budget. `budgets.py` has the rules."""

from __future__ import annotations

import uuid
from decimal import Decimal

from django import forms

from billing.models import Scope, Window

MICROS = 1_000_000


class BudgetForm(forms.Form):
    """A limit in dollars for the company, a project or an agent."""

    whose = forms.ChoiceField(label="For")
    limit = forms.DecimalField(
        label="Limit in $",
        min_value=0,
        max_value=Decimal(100_000_000),
        decimal_places=6,
        max_digits=15,
        widget=forms.NumberInput(attrs={"step": "any", "placeholder": "50.00"}),
    )
    window = forms.ChoiceField(
        label="In",
        choices=[(Window.MONTH, "a month"), (Window.DAY, "a day"), (Window.LIFETIME, "all")],
    )
    warn_percent = forms.IntegerField(label="Warn at (%)", min_value=1, max_value=100, initial=80)
    is_hard = forms.BooleanField(
        label="Hold the agents when it is reached", required=False, initial=True
    )

    def __init__(self, choices: list[object], *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        field = self.fields["whose"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = choices  # type: ignore[assignment]

    @property
    def scope(self) -> tuple[str, uuid.UUID]:
        kind, _, key = self.cleaned_data["whose"].partition(":")
        return Scope(kind), uuid.UUID(key)

    @property
    def limit_micros(self) -> int:
        return int(self.cleaned_data["limit"] * MICROS)
