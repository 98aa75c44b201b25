"""The form of an adapter's configuration, made from its typed `Config`: one field a setting.

The adapter has the last word: what the form collects goes through `adapters.validate`, and its
complaints come back to the fields by their name on the wire.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from django import forms

from agents.adapters.base import Adapter
from agents.models import ProviderConnection
from companies import secrets

LABELS = {
    "apiKeySecret": "API key",
    "apiKeyEnv": "API key from the environment",
    "baseUrl": "Base URL",
    "url": "URL",
    "cwd": "Working folder",
    "mode": "How it reports",
    "env": "Environment",
    "args": "Arguments",
    "timeoutSec": "Time limit (seconds)",
    "idleTimeoutSec": "Silence limit (seconds)",
    "graceSec": "Grace at the end (seconds)",
    "maxTokens": "Most tokens an answer",
    "maxTurns": "Most turns a run",
    "onFinish": "After its answer, instead of what is set below",
    "maxOutputBytes": "Most output (bytes)",
    "maxMemoryMb": "Most memory (MB)",
    "maxCpuSec": "Most CPU time (seconds)",
    "maxProcesses": "Most processes",
    "maxFileMb": "Largest file (MB)",
    "maxOpenFiles": "Most open files",
    "failRate": "Share of failures",
    "tools": "Let it use the issue's tools",
    "questions": "Sometimes ask a question",
    "secretRef": "Signing secret",
    "idempotent": "Safe to repeat",
    "payloadTemplate": "Extra payload",
    "connectionId": "Connection",
    "isolationNetwork": "Isolated, it may use the network",
}
HELP = {
    "apiKeySecret": "A secret of this company; its value is never shown.",
    "apiKeyEnv": "The name of a variable of the server, such as OPENAI_API_KEY.",
    "baseUrl": "Where the API lives, such as http://127.0.0.1:11434/v1. Empty: the provider's own.",
    "args": "One argument a line, as it is: no shell. Paths count from the working folder.",
    "cwd": "Where it works, such as a Git repository. Empty: a folder of its own.",
    "mode": "sync: its answer is the result. callback: it answers 202 and reports later.",
    "headers": "One a line, as Name: value. {{secret:NAME}} is filled in.",
    "env": "One a line, as NAME=value. {{secret:NAME}} names a secret.",
    "payloadTemplate": "A JSON object that is sent along.",
    "connectionId": "Address, key and limits that several agents share.",
    "fallbacks": "A JSON list of {connectionId, model}: where to turn when the first one fails.",
    "extraArgs": "One argument a line.",
    "pace": "1 is natural speed, 0 does not wait at all.",
    "failRate": "0 to 1.",
    "idempotent": "Posting the same run twice does no harm, so a lost one may be repeated.",
    "command": "The program itself; its arguments go below.",
    "idleTimeoutSec": "Without output for so long, the run ends. 0: never.",
    "isolation": "bubblewrap: it reads the machine, writes only where it works, and sees none of"
    " Paperclip's data. Needs bwrap on this machine.",
}
# Fields that most people set; the rest is folded away.
FIRST = frozenset(
    {
        *("model", "baseUrl", "apiKeySecret", "command", "args", "cwd", "url", "method", "mode"),
        *("secretRef", "script", "pace", "failRate", "questions"),
        *("connectionId", "effort", "permissionMode", "sandbox", "approvalMode"),
        *("isolation", "isolationNetwork"),
    }
)
SECRETS = frozenset({"apiKeySecret", "secretRef"})
CONNECTION = "connectionId"
# The agent has the same setting for every adapter; the adapter's own is shown where it is in use.
AGENTS_OWN = "onFinish"
_SECRET = re.compile(r"^\{\{\s*secret:\s*([^{}\s]+)\s*\}\}$")


class Lines(forms.Textarea):
    """A short text area in monospace."""

    def __init__(self, rows: int = 3) -> None:
        super().__init__(attrs={"rows": rows, "class": "code", "spellcheck": "false"})


def make(
    adapter: Adapter,
    *,
    company_id: uuid.UUID,
    data: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
) -> ConfigForm:
    """The form for `adapter`; `config` is the stored configuration to start from."""
    schema = adapter.Config.model_json_schema(by_alias=True)
    names = set(schema["properties"])
    offers: dict[str, list[tuple[str, str]]] = {}
    if names & SECRETS:
        known = [(name, name) for name in secrets.names(company_id)]
        offers |= dict.fromkeys(SECRETS, known)
    if CONNECTION in names:
        rows = ProviderConnection.objects.for_company(company_id).filter(kind=adapter.type)
        offers[CONNECTION] = [
            (str(key), name) for key, name in rows.order_by("name", "id").values_list("id", "name")
        ]
    return ConfigForm(schema, offers=offers, data=data, config=config or {})


class ConfigForm(forms.Form):
    prefix = "config"

    def __init__(
        self,
        schema: Mapping[str, Any],
        *,
        offers: Mapping[str, Sequence[tuple[str, str]]],
        data: Mapping[str, Any] | None,
        config: Mapping[str, Any],
    ) -> None:
        super().__init__(data)
        self.kinds: dict[str, str] = {}
        required = set(schema.get("required", ()))
        in_use = AGENTS_OWN in config or f"{self.prefix}-{AGENTS_OWN}" in (data or {})
        names = [name for name in schema["properties"] if name != AGENTS_OWN or in_use]
        for name in sorted(
            names, key=lambda n: (n not in required, n not in FIRST, names.index(n))
        ):
            self._add(name, schema["properties"][name], name in required, offers, config)

    def _add(
        self,
        name: str,
        given: Mapping[str, Any],
        required: bool,
        offers: Mapping[str, Sequence[tuple[str, str]]],
        config: Mapping[str, Any],
    ) -> None:
        options = [part for part in given.get("anyOf", ()) if part.get("type") != "null"]
        spec = {**given, **(options[0] if options else {})}
        kind = "offer" if name in offers else _kind(spec)
        stored = config.get(name)
        default = given.get("default")
        common: dict[str, Any] = {
            "label": LABELS.get(name) or _words(name),
            "help_text": HELP.get(name, ""),
            "required": required,
        }
        self.kinds[name] = kind
        field: forms.Field
        if kind == "offer":
            known = list(offers[name])
            if stored and str(stored) not in dict(known):
                known.append((str(stored), f"{stored} (missing)"))
            field = forms.ChoiceField(choices=[("", "None"), *known], **common)
        elif kind == "choice":
            blank = [] if default is not None else [("", "As usual")]
            names = [(one, str(one).replace("_", " ")) for one in spec["enum"]]
            field = forms.ChoiceField(choices=[*blank, *names], **common)
        elif kind == "yes":
            field = forms.BooleanField(**common | {"required": False})
        elif kind in ("integer", "number"):
            number = forms.IntegerField if kind == "integer" else forms.FloatField
            widget = forms.NumberInput(attrs={"step": "any" if kind == "number" else "1"})
            if default is not None:
                widget.attrs["placeholder"] = f"{default:g}" if kind == "number" else str(default)
            field = number(widget=widget, **common)
        elif kind in ("list", "pairs", "json", "rows"):
            field = forms.CharField(widget=Lines(), strip=False, **common)
        else:
            field = forms.CharField(max_length=spec.get("maxLength", 20_000), **common)
        value = stored if stored is not None else default if kind in ("yes", "choice") else None
        field.initial = _shown(kind, name, value)
        self.fields[name] = field

    @property
    def first(self) -> list[forms.BoundField]:
        return [self[name] for name in self.fields if name in FIRST]

    @property
    def rest(self) -> list[forms.BoundField]:
        return [self[name] for name in self.fields if name not in FIRST]

    @property
    def unfold(self) -> bool:
        """Whether a folded field has something to say."""
        return any(
            bound.errors or bound.initial not in (None, "", True, False) for bound in self.rest
        )

    def config(self) -> dict[str, Any]:
        """What was entered, as the adapter's configuration. Empty fields are left out."""
        found: dict[str, Any] = {}
        for name, kind in self.kinds.items():
            value = self.cleaned_data.get(name)
            if kind == "yes":
                found[name] = bool(value)
            elif value not in (None, ""):
                parsed = _parsed(kind, name, value)
                if parsed not in ([], {}):
                    found[name] = parsed
        if found.get("isolation", "none") == "none":  # an empty box says nothing then
            found.pop("isolationNetwork", None)
        return found

    def complain(self, errors: Mapping[str, Sequence[str]]) -> None:
        """Put the adapter's complaints beside the fields they are about."""
        for where, said in errors.items():
            name = where.partition(".")[0]
            for text in said:
                self.add_error(name if name in self.fields else None, text)

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or {}
        for name, kind in self.kinds.items():
            wanted = {"json": dict, "rows": list}.get(kind)
            if wanted is None or not data.get(name):
                continue
            try:
                if not isinstance(json.loads(data[name]), wanted):
                    raise ValueError
            except (ValueError, RecursionError):
                shape = "object" if wanted is dict else "list"
                self.add_error(name, f"This is not a JSON {shape}.")
        return data


def _kind(spec: Mapping[str, Any]) -> str:
    if "enum" in spec:
        return "choice"
    kind = spec.get("type", "string")
    if kind == "boolean":
        return "yes"
    if kind == "array":
        return "list" if spec.get("items", {}).get("type") == "string" else "rows"
    if kind == "object":
        return "json" if spec.get("additionalProperties") is True else "pairs"
    return str(kind) if kind in ("integer", "number") else "text"


def _words(name: str) -> str:
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace(" Sec", " (seconds)").lower()
    return words[:1].upper() + words[1:]


def _shown(kind: str, name: str, value: Any) -> Any:
    if value is None:
        return None
    if kind == "list":
        return "\n".join(map(str, value))
    if kind == "pairs":
        mark = "=" if name == "env" else ": "
        return "\n".join(f"{key}{mark}{_plain(text)}" for key, text in value.items())
    if kind in ("json", "rows"):
        return json.dumps(value, indent=2, ensure_ascii=False)
    return value


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{{secret:{value.get('secret', '')}}}}}"
    return str(value)


def _parsed(kind: str, name: str, value: Any) -> Any:
    if kind == "list":
        return [line for line in str(value).replace("\r", "").split("\n") if line]
    if kind in ("json", "rows"):
        return json.loads(value)
    if kind != "pairs":
        return value
    pairs: dict[str, Any] = {}
    for line in str(value).replace("\r", "").split("\n"):
        if not line.strip():
            continue
        key, _, text = line.partition("=" if name == "env" else ":")
        secret = _SECRET.match(text.strip()) if name == "env" else None
        text = text if name == "env" else text.strip()
        pairs[key.strip()] = {"type": "secret_ref", "secret": secret[1]} if secret else text
    return pairs
