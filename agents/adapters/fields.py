"""Field types that several configurations share: addresses, headers, secret references."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from agents.adapters import outbound
from agents.adapters.base import AdapterError, Code, Config

SECRET = re.compile(r"\{\{\s*secret:([^{}\s]{1,200})\s*\}\}")
KEY_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*_(?:KEY|TOKEN)")
SERVERS_OWN = re.compile(r"SECRET_|DATABASE_|PAPERCLIP_|DJANGO_|PG|POSTGRES|EMAIL_")
FORBIDDEN_HEADERS = frozenset(
    {
        *("host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade"),
        *("te", "trailer", "expect", "proxy-authorization", "proxy-connection"),
        "accept-encoding",
    }
)


def _url(value: str) -> str:
    value = value.strip()
    problem = outbound.malformed(value)
    if problem:
        raise ValueError(f"The address {problem}.")
    return value


def _headers(value: dict[str, str]) -> dict[str, str]:
    if len(value) > 50:
        raise ValueError("At most 50 headers.")
    for name, text in value.items():
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", name):
            raise ValueError(f"{name[:100]!r} is not a header name.")
        if name.lower() in FORBIDDEN_HEADERS:
            raise ValueError(f"The header {name} is set by Paperclip itself.")
        if not re.fullmatch(r"[\t\x20-\x7e]{0,4000}", text):
            raise ValueError(f"The value of the header {name} has characters that cannot be sent.")
    return value


def _key_variable(name: str) -> str:
    """Naming a variable sends its value to an address of the namer's choice: only keys meant for
    providers may be named, never what the server itself lives on."""
    if not KEY_VARIABLE.fullmatch(name) or SERVERS_OWN.match(name):
        raise ValueError("The variable must be a provider's key, such as OPENAI_API_KEY.")
    return name


Url = Annotated[str, StringConstraints(min_length=1, max_length=2000), AfterValidator(_url)]
Headers = Annotated[dict[str, str], AfterValidator(_headers)]
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
KeyVariable = Annotated[str, StringConstraints(max_length=200), AfterValidator(_key_variable)]
Seconds = Annotated[float, Field(gt=0, le=7 * 24 * 3600, allow_inf_nan=False)]


class SecretRef(Config):
    """A value that stands in the company's secrets, by name."""

    type: Literal["secret_ref"] = "secret_ref"
    secret: Name


def _env_value(value: Any) -> Any:
    """Accept the spellings in use: a text, `{type: plain, value}`, `{type: secret_ref, …}`."""
    if not isinstance(value, Mapping):
        return value
    if value.get("type") == "plain" and set(value) <= {"type", "value"}:
        return value.get("value")
    for spelling in ("secret", "secretId", "secretName", "name"):
        if spelling in value:
            rest = {k: v for k, v in value.items() if k not in (spelling, "version")}
            return {"type": "secret_ref", **rest, "secret": value[spelling]}
    return value


EnvValue = Annotated[
    Annotated[str, StringConstraints(max_length=20_000)] | SecretRef, BeforeValidator(_env_value)
]


def secret_value(name: str, secrets: Mapping[str, str]) -> str:
    """The value of the secret `name`. Raises AdapterError(CONFIG_INVALID) when it is missing."""
    value = secrets.get(name)
    if not value:
        raise AdapterError(
            Code.CONFIG_INVALID,
            f"The secret {name} has no value that this agent may use. Create it under Settings, "
            "Secrets, or choose another one in the agent's configuration.",
        )
    return value


def fill_headers(headers: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
    """The headers with `{{secret:NAME}}` replaced; a value that cannot be sent is refused."""
    filled: dict[str, str] = {}
    for name, text in headers.items():
        value = SECRET.sub(lambda match: secret_value(match[1], secrets), text)
        if not re.fullmatch(r"[\t\x20-\x7e]*", value):
            raise AdapterError(
                Code.CONFIG_INVALID, f"The header {name} has characters that cannot be sent."
            )
        filled[name] = value
    return filled


def merged(headers: Mapping[str, str], over: Mapping[str, str]) -> dict[str, str]:
    """All headers of both; one that both name, in whatever spelling, is that of `over`."""
    names = {name.lower() for name in over}
    return {**{n: v for n, v in headers.items() if n.lower() not in names}, **over}


def secrets_in_headers(headers: Mapping[str, str]) -> set[str]:
    return {match[1] for text in headers.values() for match in SECRET.finditer(text)}
