"""Secrets that somebody typed into an agent's configuration: they are kept with the company's
secrets, sealed, and the configuration only names them."""

from __future__ import annotations

import re
from datetime import datetime

from agents.models import Agent
from companies import secrets
from companies.activity import Actor
from companies.errors import Invalid

# What an environment or a header calls a secret.
_NAME = re.compile(
    r"(?:^|[_-])(?:api[_-]?key|key|token|secret|password|passwd|credentials?|cookie|authorization)"
    r"(?:$|[_-])",
    re.IGNORECASE,
)
_NAMED = "{{secret:"


def put_away(*, agent: Agent, actor: Actor, now: datetime) -> None:
    """Store the plain secrets of `agent.adapter_config`, which is changed and not saved.

    A stored one is called as its variable or header is, and by the agent's number, so that each
    agent has its own and keeps it under another name. Raises Invalid for a value that is no secret.
    """
    config = dict(agent.adapter_config)
    for part, named in (("env", _reference), ("headers", _template)):
        kept = {}
        for name, value in (config.get(part) or {}).items():
            if isinstance(value, str) and value and _NAMED not in value and _NAME.search(name):
                value = named(_store(agent, name, value, actor, now))
            kept[name] = value
        if kept:
            config[part] = kept
    agent.adapter_config = config


def _store(agent: Agent, name: str, value: str, actor: Actor, now: datetime) -> str:
    known_as = f"{name[:80]}.agent-{agent.number}"
    try:
        secrets.put(company=agent.company, name=known_as, value=value, actor=actor, now=now)
    except Invalid as error:
        raise Invalid(
            "adapter_config_invalid", f"{name}: {error}", field="adapter_config"
        ) from error
    return known_as


def _reference(name: str) -> dict[str, str]:
    return {"type": "secret_ref", "secret": name}


def _template(name: str) -> str:
    return f"{_NAMED}{name}}}}}"
