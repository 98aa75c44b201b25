"""The form of a connection. It checks shapes; `connections.py` has the rules and the last word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms

from agents.connection_models import ProviderConnection
from companies.errors import Refusal


class ConnectionForm(forms.Form):
    """Everything that people set; the kind only at the beginning."""

    name = forms.CharField(max_length=80, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    kind = forms.ChoiceField(label="Speaks", choices=ProviderConnection.Kind.choices)
    base_url = forms.CharField(
        label="Base URL",
        required=False,
        max_length=2000,
        help_text="Such as https://api.openai.com/v1. Empty for Anthropic: its own.",
        widget=forms.TextInput(attrs={"class": "code", "autocomplete": "off"}),
    )
    key_secret = forms.ChoiceField(
        label="API key", required=False, help_text="A secret of this company; never shown."
    )
    requests_per_minute = forms.IntegerField(
        label="Requests a minute", required=False, min_value=1, max_value=1_000_000
    )
    tokens_per_minute = forms.IntegerField(
        label="Tokens a minute", required=False, min_value=1, max_value=2_000_000_000
    )
    max_concurrent_runs = forms.IntegerField(
        label="Runs at the same time", required=False, min_value=1, max_value=10_000
    )

    def __init__(
        self, secrets: Sequence[str], *args: Any, row: ProviderConnection | None = None, **kw: Any
    ) -> None:
        if row is not None:
            names = [*self.base_fields]
            kw.setdefault("initial", {name: getattr(row, name) for name in names})
            kw.setdefault("prefix", f"c{row.pk.hex[-8:]}")
        super().__init__(*args, **kw)
        known = list(secrets)
        if row is not None and row.key_secret and row.key_secret not in known:
            known.append(row.key_secret)
        choices = self.fields["key_secret"]
        assert isinstance(choices, forms.ChoiceField)
        choices.choices = [("", "None"), *((one, one) for one in known)]
        if row is not None:
            del self.fields["kind"]

    def complain(self, refusal: Refusal) -> None:
        """Put a refusal beside the field that it is about."""
        self.add_error(refusal.field if refusal.field in self.fields else None, refusal.message)
