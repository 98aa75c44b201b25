"""Who is called by name in a text: `[@Ada](agent://<id>)`, `@Ada` or `@short-name`."""

from __future__ import annotations

import re
import uuid

from agents.models import Agent

LIMIT = 10  # agents that one comment can call

_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_LINK = re.compile(r"\[@[^\]\n]{1,120}\]\(agent://([0-9a-fA-F-]{36})\)")
# An address such as olga@example.com calls nobody.
_AT = re.compile(r"(?<![\w.@/])@(?=\w)")


def find(body: str, company_id: uuid.UUID) -> list[Agent]:
    """The agents that `body` calls, in order, each once, at most `LIMIT`. Code calls nobody."""
    if "@" not in body:
        return []
    body = _CODE.sub(" ", body)
    agents = list(Agent.objects.for_company(company_id).exclude(status=Agent.Status.TERMINATED))
    by_id = {agent.id: agent for agent in agents}
    called: list[tuple[int, Agent]] = []
    for link in _LINK.finditer(body):
        try:
            agent = by_id.get(uuid.UUID(link[1]))
        except ValueError:
            continue
        if agent is not None:
            called.append((link.start(), agent))
    plain = _LINK.sub(lambda link: " " * len(link[0]), body)
    names = _names(agents)
    for at in _AT.finditer(plain):
        agent = _named(plain, at.end(), names)
        if agent is not None:
            called.append((at.start(), agent))
    called.sort(key=lambda entry: entry[0])
    return list({agent.id: agent for _, agent in called}.values())[:LIMIT]


def _names(agents: list[Agent]) -> list[tuple[str, Agent]]:
    """Names and short names in lower case, the longest first: "Ada Two" is not "Ada"."""
    names = [(agent.slug.lower(), agent) for agent in agents]
    names += [(agent.name.lower(), agent) for agent in agents]
    return sorted(names, key=lambda entry: -len(entry[0]))


def _named(text: str, start: int, names: list[tuple[str, Agent]]) -> Agent | None:
    rest = text[start : start + 121].lower()
    for name, agent in names:
        if rest.startswith(name) and not re.match(r"[\w-]*\w", rest[len(name) :]):
            return agent
    return None
