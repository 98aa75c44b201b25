"""The command palette: pages, issues, agents, projects, runs and actions by a few letters.

The same answer is the page `/search` for those without scripts. Every entry is a link or a form
that posts to the address which the button on the page uses.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

from django.db.models import BooleanField, Case, Q, Value, When
from django.http import HttpResponse
from django.shortcuts import render

from agents.models import Agent, HeartbeatRun
from companies.models import Project
from companies.views.door import PageRequest, page
from issues.models import Issue

SHOWN = 8
TEXT_LIMIT = 100

PAGES = (
    # name, address below the company, icon, more words that find it
    ("Home", "/", "house", "dashboard overview start"),
    ("Inbox", "/inbox/", "inbox", "approvals questions decisions needs you"),
    ("Issues", "/issues/", "circle-dot", "tasks list"),
    ("Board", "/issues/board", "square-kanban", "kanban columns"),
    ("Goals and projects", "/goals/", "target", "strategy"),
    ("Agents", "/agents/", "bot", "roster team people"),
    ("Org chart", "/agents/?view=org", "network", "organisation tree reports"),
    ("Runs", "/runs/", "chart-gantt", "heartbeats logs gantt timeline"),
    ("Costs", "/costs/", "wallet", "money spend forecast"),
    ("Budgets", "/costs/#budgets", "wallet", "limits money"),
    ("Prices", "/costs/prices", "wallet", "models tokens"),
    ("Activity", "/activity/", "history", "log audit who did what"),
    ("Settings", "/settings/", "settings", "company"),
    ("Members and roles", "/settings/#members", "users", "invite people owner operator viewer"),
    ("Secrets", "/settings/#secrets", "lock", "keys environment"),
    ("API keys", "/settings/#keys", "key-round", "tokens scripts"),
    ("Providers", "/settings/connections/", "unplug", "connections models quota limits"),
)

AGENT_VERBS = (("Wake", "zap"), ("Pause", "pause"), ("Resume", "play"))


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: a link, or with `fields` a form that posts there."""

    text: str
    href: str
    icon: str
    hint: str = ""
    mono: str = ""
    fields: dict[str, str] | None = None


@dataclass(slots=True)
class Group:
    title: str
    entries: list[Entry] = field(default_factory=list)


@page()
def search(request: PageRequest) -> HttpResponse:
    """What the letters find, the most likely first; at most four queries."""
    text = request.GET.get("q", "").replace("\x00", "").strip()[:TEXT_LIMIT]
    part = bool(request.htmx and request.htmx.target == "palette-found")
    context = {"section": "search", "q": text, "groups": find(request, text), "part": part}
    return render(request, "paperclip/_palette.html" if part else "paperclip/search.html", context)


def find(request: PageRequest, text: str) -> list[Group]:
    """Groups that have something, in the order of use."""
    words = text.lower().split()
    groups = [Group("Go to", _pages(request.base, words))]
    if text:
        agents = _agents(request, text)
        asked = _asked_of(request, words, agents)
        groups = [
            # Who says what to do ("pause ada") wants it done, not somebody to look at.
            Group("Do", asked),
            Group("Issues", _issues(request, text)),
            Group("Agents", [_agent(request.base, one) for one in agents]),
            *groups,
            Group("Projects", _projects(request, text)),
            Group("Runs", _runs(request, text)),
            Group("Do", _actions(request, words, [] if asked else agents)),
        ]
    else:
        groups.append(Group("Do", _actions(request, words, [])))
    return [group for group in groups if group.entries]


def _has(words: Iterable[str], *names: str) -> bool:
    known = " ".join(names).lower()
    return all(word in known for word in words)


def _pages(base: str, words: list[str]) -> list[Entry]:
    return [
        Entry(name, base + tail, icon)
        for name, tail, icon, more in PAGES
        if _has(words, name, more)
    ]


def _issues(request: PageRequest, text: str) -> list[Entry]:
    named = Q(identifier__istartswith=text)
    if text.isdigit():
        named |= Q(identifier=f"{request.company.issue_prefix}-{int(text)}")
    rows = (
        Issue.objects.for_company(request.company.id)
        .listed()
        .filter(named | Q(title__icontains=text))
        .annotate(
            far=Case(When(named, then=Value(False)), default=True, output_field=BooleanField()),
            shut=Case(
                When(status__in=Issue.CLOSED, then=Value(True)),
                default=False,
                output_field=BooleanField(),
            ),
        )
        .order_by("far", "shut", "-updated_at", "-id")
        .only("identifier", "title", "status")[:SHOWN]
    )
    return [
        Entry(
            row.title,
            f"{request.base}/issues/{row.identifier}",
            "circle-dot",
            row.get_status_display().replace("_", " ").lower(),
            row.identifier,
        )
        for row in rows
    ]


def _agents(request: PageRequest, text: str) -> list[Agent]:
    # "pause ada" names somebody, too.
    names = Q(name__icontains=text) | Q(title__icontains=text)
    for word in text.split()[1:]:
        names |= Q(name__icontains=word)
    return list(
        Agent.objects.for_company(request.company.id)
        .exclude(status=Agent.Status.TERMINATED)
        .filter(names)
        .only("name", "slug", "title", "role")
        .order_by("name", "id")[:5]
    )


def _agent(base: str, agent: Agent) -> Entry:
    return Entry(agent.name, f"{base}/agents/{agent.slug}/", "bot", agent.title or agent.role)


def _projects(request: PageRequest, text: str) -> list[Entry]:
    rows = (
        Project.objects.for_company(request.company.id)
        .filter(name__icontains=text, archived_at=None)
        .order_by("name", "id")[:5]
    )
    return [
        Entry(row.name, f"{request.base}/issues/?status=all&project={row.id}", "folder", "issues")
        for row in rows
    ]


def _runs(request: PageRequest, text: str) -> list[Entry]:
    """A run by its id, as logs and messages name it."""
    try:
        key = uuid.UUID(text)
    except ValueError:
        return []
    rows = HeartbeatRun.objects.for_company(request.company.id).filter(id=key)
    return [
        Entry(f"Run of {row.agent.name}", f"{request.base}/runs/{row.id}", "terminal", row.status)
        for row in rows.select_related("agent")
    ]


def _actions(request: PageRequest, words: list[str], agents: list[Agent]) -> list[Entry]:
    base, do = request.base, []
    if request.may("operate"):
        do += [
            Entry("New issue", f"{base}/issues/new", "plus"),
            Entry("Hire an agent", f"{base}/agents/new", "plus"),
        ]
    if request.may("manage") and request.company.status == "active":
        fields = {"wish": "pause", "reason": ""}
        do.append(
            Entry("Pause the whole company", f"{base}/settings/state", "pause", fields=fields)
        )
    elif request.may("manage") and request.company.status == "paused":
        do.append(
            Entry("Resume the company", f"{base}/settings/state", "play", fields={"wish": "resume"})
        )
    for value in ("light", "dark", "auto"):
        fields = {"theme": value, "next": f"{base}/"}
        do.append(Entry(f"Theme: {value}", "/theme", "moon", fields=fields))
    found = [entry for entry in do if _has(words, entry.text)]
    return found + _of_agents(request, words, agents)


def _of_agents(request: PageRequest, words: list[str], agents: list[Agent]) -> list[Entry]:
    if not request.may("operate"):
        return []
    found = []
    for agent in agents:
        for verb, icon in AGENT_VERBS:
            text, home = f"{verb} {agent.name}", f"{request.base}/agents/{agent.slug}/"
            if _has(words, text, agent.title):
                found.append(Entry(text, f"{home}{verb.lower()}", icon, fields={"next": home}))
    return found


def _asked_of(request: PageRequest, words: list[str], agents: list[Agent]) -> list[Entry]:
    """What is to be done with an agent, said as a verb and its name."""
    verbs = [verb.lower() for verb, _ in AGENT_VERBS]
    return _of_agents(request, words, agents) if words[0] in verbs and len(words) > 1 else []
