"""The forms of a budget and of a price. `budgets.py` and `prices.py` have the rules."""

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
    unpriced_calls = forms.IntegerField(
        label="Calls without a price",
        min_value=0,
        max_value=10**9,
        required=False,
        widget=forms.NumberInput(attrs={"placeholder": "0"}),
        help_text="So many may pass in a period. Empty: as it was.",
    )
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
    def unpriced(self) -> dict[str, int]:
        """The number of calls, when one was given; a budget that stands keeps its own."""
        calls = self.cleaned_data["unpriced_calls"]
        return {} if calls is None else {"unpriced_calls": calls}

    @property
    def limit_micros(self) -> int:
        return int(self.cleaned_data["limit"] * MICROS)


class PriceForm(forms.Form):
    """What a model costs, in dollars a million tokens, as providers print it."""

    model = forms.CharField(max_length=120, help_text="As the agent names it.")
    per_input = forms.DecimalField(
        label="Input, $ a million tokens",
        min_value=0,
        max_value=Decimal(1_000_000),
        decimal_places=6,
        widget=forms.NumberInput(attrs={"step": "any", "placeholder": "0"}),
        help_text="0: it is free.",
    )
    per_output = forms.DecimalField(
        label="Output, $ a million tokens",
        min_value=0,
        max_value=Decimal(1_000_000),
        decimal_places=6,
        widget=forms.NumberInput(attrs={"step": "any", "placeholder": "0"}),
    )

    def pico(self, name: str) -> int:
        """The price of a token in pico-dollars: a million for each dollar a million tokens."""
        return int(self.cleaned_data[name] * MICROS)
