"""The form made from a typed configuration: what goes in comes out."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from agents import adapters, config_form
from companies.models import Company

SAMPLES: dict[str, dict[str, Any]] = {
    "openai": {
        "model": "m",
        "baseUrl": "http://127.0.0.1:1/v1",
        "maxTokens": 100,
        "temperature": 0.2,
        "headers": {"X-Team": "a: b"},
        "tools": False,
    },
    "anthropic": {"model": "m", "timeoutSec": 60.0, "onFinish": "done"},
    "process": {
        "command": "/bin/sh",
        "args": ["-c", "echo  two  spaces", "ünï"],
        "env": {"A": "1=2", "B": {"type": "secret_ref", "secret": "TOKEN"}},
        "idleTimeoutSec": 0.0,
    },
    "http": {"url": "https://example.com/x", "payloadTemplate": {"a": [1, {"b": None}]}},
    "demo": {"script": "research", "pace": 0.0, "failRate": 0.5, "questions": False},
}


def sent(form: config_form.ConfigForm) -> dict[str, Any]:
    """What a browser posts for a form as it stands."""
    return {
        form.add_prefix(name): value
        for name, field in form.fields.items()
        if (value := field.initial) not in (None, "") and value is not False
    }


@pytest.mark.parametrize("kind", [adapter.type for adapter in adapters.all()])
def test_every_adapter_has_a_form(kind: str, acme: Company) -> None:
    form = config_form.make(adapters.get(kind), company_id=acme.id)
    settings = set(adapters.get(kind).Config.model_json_schema(by_alias=True)["properties"])
    assert set(form.fields) == settings - {"onFinish"}
    assert form.as_p()


def test_what_the_agent_says_itself_is_asked_for_once(acme: Company) -> None:
    """What follows an answer is a field of every agent; an adapter's own stays where it is set."""
    adapter = adapters.get("openai")
    assert "onFinish" not in config_form.make(adapter, company_id=acme.id).fields
    stored = {"model": "m", "onFinish": "done"}
    assert "onFinish" in config_form.make(adapter, company_id=acme.id, config=stored).fields


@pytest.mark.parametrize("kind", [adapter.type for adapter in adapters.all()])
def test_labels_name_units_as_people_write_them(kind: str, acme: Company) -> None:
    form = config_form.make(adapters.get(kind), company_id=acme.id)
    labels = [str(field.label) for field in form.fields.values()]
    assert not [label for label in labels if label.split()[-1] in ("mb", "sec", "bytes", "ms")]


@pytest.mark.parametrize("kind", list(SAMPLES))
def test_a_stored_configuration_survives_the_form(kind: str, acme: Company) -> None:
    adapter, stored = adapters.get(kind), SAMPLES[kind]
    shown = config_form.make(adapter, company_id=acme.id, config=stored)
    form = config_form.make(adapter, company_id=acme.id, config=stored, data=sent(shown))
    assert form.is_valid(), form.errors
    again = adapters.validate(kind, form.config())
    assert {name: again[name] for name in stored} == adapters.validate(kind, stored)


def test_what_is_no_json_is_said_at_its_field(acme: Company) -> None:
    for kind, name, text in (
        ("http", "payloadTemplate", "[1]"),
        ("openai", "fallbacks", '{"a": 1}'),
        ("http", "payloadTemplate", "{" * 5_000),
    ):
        data = {f"config-{name}": text, "config-url": "https://x.example", "config-model": "m"}
        form = config_form.make(adapters.get(kind), company_id=acme.id, data=data)
        assert not form.is_valid()
        assert name in form.errors


def test_complaints_about_a_part_land_on_the_whole_field(acme: Company) -> None:
    form = config_form.make(adapters.get("openai"), company_id=acme.id, data={"config-model": "m"})
    form.is_valid()
    form.complain({"fallbacks.0.model": ["Name a model."], "nowhere": ["Odd."], "": ["Whole."]})
    assert form.errors["fallbacks"] == ["Name a model."]
    assert form.non_field_errors() == ["Odd.", "Whole."]


def test_a_missing_connection_is_shown_as_missing(acme: Company) -> None:
    lost = str(uuid.uuid4())
    form = config_form.make(
        adapters.get("openai"), company_id=acme.id, config={"connectionId": lost}
    )
    assert (lost, f"{lost} (missing)") in form.fields["connectionId"].choices  # type: ignore[attr-defined]
