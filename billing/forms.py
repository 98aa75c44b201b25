"""The forms of a budget and of a price. `budgets.py` and `prices.py` have the rules."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime
from decimal import Decimal

from django import forms

from billing.models import Scope, Window
from companies import moments

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
        choices=[
            (Window.MONTH, "a month"),
            (Window.DAY, "a day"),
            (Window.RUN, "one run"),
            (Window.LIFETIME, "all"),
        ],
    )
    limit_tokens = forms.IntegerField(
        label="Token limit",
        min_value=0,
        max_value=10**15,
        required=False,
        widget=forms.NumberInput(attrs={"placeholder": "none"}),
        help_text="Uncached tokens; for subscriptions.",
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
    def optional(self) -> dict[str, int]:
        """The numbers that were given; a budget that stands keeps its own."""
        given = {name: self.cleaned_data[name] for name in ("unpriced_calls", "limit_tokens")}
        return {name: number for name, number in given.items() if number is not None}

    @property
    def limit_micros(self) -> int:
        return int(self.cleaned_data["limit"] * MICROS)


def _per_million(label: str, *, required: bool = True, help_text: str = "") -> forms.DecimalField:
    return forms.DecimalField(
        label=label,
        min_value=0,
        max_value=Decimal(1_000_000),
        decimal_places=6,
        required=required,
        widget=forms.NumberInput(attrs={"step": "any", "placeholder": "0" if required else ""}),
        help_text=help_text,
    )


class PriceForm(forms.Form):
    """What a model costs, in dollars a million tokens, as providers print it."""

    model = forms.CharField(max_length=120, help_text="As the agent names it.")
    provider = forms.CharField(max_length=60, required=False, help_text="Empty: any.")
    per_input = _per_million("Input", help_text="$ a million tokens. 0: free.")
    per_output = _per_million("Output")
    per_cache_read = _per_million("Read from cache", required=False, help_text="Empty: as input.")
    per_cache_write = _per_million("Written to cache", required=False, help_text="Empty: as input.")
    effective_on = forms.DateField(
        label="Since",
        required=False,
        widget=forms.DateInput(attrs={"type": "date"}),
        help_text="Empty: now. Booked calls stay as they are.",
    )

    def clean_effective_on(self) -> date | None:
        day: date | None = self.cleaned_data["effective_on"]
        if day is not None and day.year < moments.FIRST_YEAR:
            raise forms.ValidationError(f"The day {moments.BOUNDS}.")
        return day

    def pico(self, name: str) -> int | None:
        """The price of a token in pico-dollars: a million for each dollar a million tokens."""
        given = self.cleaned_data[name]
        return None if given is None else int(given * MICROS)

    @property
    def effective_at(self) -> datetime | None:
        day = self.cleaned_data["effective_on"]
        return None if day is None else datetime(day.year, day.month, day.day, tzinfo=UTC)


class CostForm(forms.Form):
    """What the provider's page says that a lost run cost."""

    cost = forms.DecimalField(min_value=0, max_value=Decimal(1_000_000), decimal_places=6)

    @property
    def micros(self) -> int:
        return int(self.cleaned_data["cost"] * MICROS)


class RaiseForm(forms.Form):
    """The higher limit that answers an incident."""

    limit = forms.DecimalField(
        min_value=0, max_value=Decimal(100_000_000), decimal_places=6, max_digits=15
    )

    @property
    def micros(self) -> int:
        return int(self.cleaned_data["limit"] * MICROS)


class BillForm(forms.Form):
    """A provider's usage file."""

    provider = forms.CharField(max_length=60, help_text="As it stands in the costs by provider.")
    file = forms.FileField(
        label="CSV file", help_text="With columns for day, model and cost in USD."
    )
