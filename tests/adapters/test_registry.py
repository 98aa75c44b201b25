"""Adapters by name, and configurations that are checked before they are stored."""

from typing import Any
from uuid import UUID

import pytest
from pydantic import ValidationError

from agents import adapters
from tests.adapters.conftest import make_brief


def test_every_adapter_is_found_by_its_type() -> None:
    types = {adapter.type for adapter in adapters.all()}
    assert {"openai", "anthropic", "process", "http", "demo"} <= types
    assert set(adapters.ALIASES.values()) <= types
    assert all(adapters.get(adapter.type) is adapter for adapter in adapters.all())
    assert all(adapter.label and adapter.description for adapter in adapters.all())


def test_an_unknown_type_has_an_error_of_its_own() -> None:
    with pytest.raises(adapters.UnknownAdapter) as caught:
        adapters.get("telepathy")
    assert caught.value.type == "telepathy"


@pytest.mark.parametrize(
    ("alias", "config", "expected"),
    [
        ("claude-code", {"model": "x"}, ("claude_local", {"model": "x"})),
        (
            "groq",
            {"model": "x"},
            ("openai", {"model": "x", "baseUrl": "https://api.groq.com/openai/v1"}),
        ),
        ("groq", {"baseUrl": "http://a"}, ("openai", {"baseUrl": "http://a"})),
        (
            "shell",
            {"command": "make 'the report' -j2"},
            ("process", {"command": "make", "args": ["the report", "-j2"]}),
        ),
        (
            "shell",
            {"command": "a b", "args": ["c"]},
            ("process", {"command": "a b", "args": ["c"]}),
        ),
        ("process", {"command": "a b"}, ("process", {"command": "a b"})),
    ],
)
def test_known_names_lead_to_real_ones(alias: str, config: dict, expected: tuple) -> None:
    assert adapters.resolve(alias, config) == expected


@pytest.mark.parametrize("command", ["a | b", "a > b", "a && b", "echo $(id)", "echo 'open"])
def test_a_shell_line_is_refused_with_advice(command: str) -> None:
    with pytest.raises(adapters.ConfigError) as caught:
        adapters.resolve("shell", {"command": command})
    assert "command" in caught.value.errors


@pytest.mark.parametrize(
    ("type_", "config", "field"),
    [
        ("openai", {"baseUrl": "https://a.example"}, "model"),
        ("openai", {"model": "m", "baseUrl": "ftp://a.example"}, "baseUrl"),
        ("openai", {"model": "m", "baseUrl": "http://10.0.0.1"}, "baseUrl"),
        ("openai", {"model": "m", "maxTokens": 0}, "maxTokens"),
        ("openai", {"model": "m", "temperature": float("nan")}, "temperature"),
        ("openai", {"model": "m", "timeoutSec": float("inf")}, "timeoutSec"),
        ("openai", {"model": "m", "apiKey": "sk-plain"}, "apiKey"),
        ("openai", {"model": "m", "headers": {"Host": "x"}}, "headers"),
        ("openai", {"model": "m", "headers": {"X": "a\r\nY: b"}}, "headers"),
        ("openai", {"model": "m", "apiKeyEnv": "A_KEY", "apiKeySecret": "B"}, ""),
        ("openai", {"model": "m", "apiKeyEnv": "SECRET_KEY"}, "apiKeyEnv"),
        ("openai", {"model": "m", "apiKeyEnv": "DATABASE_URL"}, "apiKeyEnv"),
        ("openai", {"model": "m", "apiKeyEnv": "PAPERCLIP_MASTER_KEY"}, "apiKeyEnv"),
        ("anthropic", {"model": "m", "onFinish": "never"}, "onFinish"),
        ("process", {}, "command"),
        ("process", {"command": "x", "args": "a b"}, "args"),
        ("process", {"command": "x", "args": ["a\0b"]}, "args.0"),
        ("process", {"command": "x", "env": {"PAPERCLIP_API_KEY": "x"}}, "env"),
        ("process", {"command": "x", "env": {"A-B": "x"}}, "env"),
        ("process", {"command": "x", "env": {"A": {"what": 1}}}, "env.A.secret"),
        ("http", {"url": "http://169.254.169.254/"}, "url"),
        ("http", {"url": "https://a.example", "method": "GET"}, "method"),
        ("demo", {"pace": -1}, "pace"),
        ("demo", {"failRate": 2}, "failRate"),
    ],
)
def test_each_mistake_is_reported_at_its_field(type_: str, config: dict, field: str) -> None:
    with pytest.raises(adapters.ConfigError) as caught:
        adapters.validate(type_, config)
    assert field in caught.value.errors
    assert all(caught.value.errors[field])


def test_a_mistake_of_the_whole_is_told_without_a_field() -> None:
    config = {"model": "m", "baseUrl": "http://a.example", "connectionId": str(UUID(int=1))}
    with pytest.raises(adapters.ConfigError) as caught:
        adapters.validate("openai", config)
    assert str(caught.value) == "The connection has the address; leave baseUrl out."


@pytest.mark.parametrize(
    ("type_", "config", "stored"),
    [
        ("demo", {}, {}),
        ("openai", {"model": "m", "max_tokens": 5}, {"model": "m", "maxTokens": 5}),
        (
            "process",
            {
                "command": "x",
                "env": {
                    "A": "1",
                    "B": {"type": "plain", "value": "2"},
                    "C": {"type": "secret_ref", "secretId": "s", "version": "latest"},
                },
            },
            {
                "command": "x",
                "env": {"A": "1", "B": "2", "C": {"type": "secret_ref", "secret": "s"}},
            },
        ),
    ],
)
def test_a_good_configuration_is_stored_in_one_spelling(
    type_: str, config: dict, stored: dict[str, Any]
) -> None:
    assert adapters.validate(type_, config) == stored
    assert adapters.validate(type_, stored) == stored


def test_the_secrets_of_a_configuration_are_known() -> None:
    headers = {"X-A": "{{secret:HEADER}}"}
    openai = {"model": "m", "apiKeySecret": "KEY", "headers": headers}
    process = {"command": "x", "env": {"A": {"secret": "ENV"}, "B": "plain"}}
    assert adapters.secret_names("openai", openai) == {"KEY", "HEADER"}
    assert adapters.secret_names("process", process) == {"ENV"}
    assert adapters.secret_names("http", {"url": "https://a.example", "secretRef": "S"}) == {"S"}
    assert adapters.secret_names("demo", {}) == set()


def test_a_refused_configuration_does_not_repeat_what_stood_in_it() -> None:
    """Headers may hold a key in plain; the message stands in the run, where everybody reads."""
    config = {
        "url": "https://a.example",
        "headers": {"Authorization": "Bearer s3cret\n"},
        "gone": "s3cret",
    }
    with pytest.raises(ValidationError) as refused:
        adapters.get("http").Config.model_validate(config)
    assert "The value of the header Authorization" in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_what_a_run_is_handed_can_be_shown_without_its_keys() -> None:
    """A brief comes into tracebacks and logs as it is written here."""
    shown = repr(
        make_brief(
            api_key="s3cret-token", env={"PAPERCLIP_API_KEY": "s3cret"}, secrets={"K": "s3cret"}
        )
    )
    assert "Ada" in shown
    assert "s3cret" not in shown
