"""The few tools that a chat model gets over its own issue, so that it does the job and not only
talks. Arguments come from a model: whatever is wrong with them is an answer to the model, never a
failure of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from agents.adapters.base import ToolResult, ToolSpec
from agents.models import Agent
from companies.access import Principal
from companies.errors import Refusal
from issues import board, questions
from issues.models import Issue

S = Issue.Status

RESULT_CHARS = 50_000

TOOLS: list[ToolSpec] = [
    ToolSpec(
        name="comment",
        description="Write a comment into the issue's thread (Markdown). Use it for results and"
        " progress that people should read. @Name calls another agent.",
        parameters={
            "type": "object",
            "properties": {"body": {"type": "string", "description": "The comment."}},
            "required": ["body"],
            "additionalProperties": False,
        },
    ),
    ToolSpec(
        name="set_status",
        description="Say how the issue stands and end this run: done (finished), in_review (a"
        " person should look at it), blocked (you cannot go on; say what is needed) or cancelled"
        " (it makes no sense; say why).",
        parameters={
            "type": "object",
            "properties": {
                "status": {"type": "string", "enum": ["done", "in_review", "blocked", "cancelled"]},
                "result": {
                    "type": "string",
                    "description": "The result or the reason (Markdown); becomes a comment.",
                },
            },
            "required": ["status", "result"],
            "additionalProperties": False,
        },
    ),
    ToolSpec(
        name="create_sub_issue",
        description="Split off a part of this issue. Assigned to an agent, it starts at once; you"
        " are woken when all sub-issues are closed.",
        parameters={
            "type": "object",
            "properties": {
                "title": {"type": "string"},
                "description": {"type": "string"},
                "assignee": {
                    "type": "string",
                    "description": "Name of the agent to do it; leave out to let people assign.",
                },
                "priority": {"type": "string", "enum": ["critical", "high", "medium", "low"]},
            },
            "required": ["title"],
            "additionalProperties": False,
        },
    ),
    ToolSpec(
        name="ask_operator",
        description="Ask the people who run this company when you need a decision or a fact. The"
        " issue waits for their answer and you are woken with it.",
        parameters={
            "type": "object",
            "properties": {
                "question": {"type": "string"},
                "options": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Answers to choose from, if there are natural ones.",
                },
            },
            "required": ["question"],
            "additionalProperties": False,
        },
    ),
]


def call(
    *,
    principal: Principal,
    issue: Issue,
    name: str,
    arguments: Mapping[str, Any],
    now: datetime,
) -> ToolResult:
    """Carry out one call of a run's model; a refusal is a result with `is_error`."""
    tool = _TOOLS.get(name)
    if tool is None:
        return ToolResult(f"There is no tool {name[:60]!r}.", is_error=True)
    if not isinstance(arguments, Mapping):
        return ToolResult("The arguments must be a JSON object.", is_error=True)
    spec = next(one for one in TOOLS if one.name == name)
    problem = _problem(spec, arguments)
    if problem:
        return ToolResult(problem, is_error=True)
    try:
        return tool(principal, issue, arguments, now)
    except Refusal as refusal:
        return ToolResult(_refused(refusal), is_error=True)


def _problem(spec: ToolSpec, arguments: Mapping[str, Any]) -> str:
    """What is wrong with the arguments, by the tool's own schema; empty when nothing is."""
    properties = spec.parameters["properties"]
    for key in arguments:
        if key not in properties:
            return (
                f"{spec.name} has no argument {str(key)[:60]!r}. It takes {', '.join(properties)}."
            )
    for key in spec.parameters["required"]:
        if arguments.get(key) in (None, ""):
            return f"{spec.name} needs {key!r}."
    for key, value in arguments.items():
        wanted = properties[key]
        if value is None:
            continue
        if wanted["type"] == "string" and not isinstance(value, str):
            return f"{key!r} must be text."
        if wanted["type"] == "array" and not (
            isinstance(value, list) and all(isinstance(one, str) for one in value)
        ):
            return f"{key!r} must be a list of texts."
        if "enum" in wanted and value not in wanted["enum"]:
            return f"{key!r} is one of {', '.join(wanted['enum'])}."
    return ""


def _refused(refusal: Refusal) -> str:
    allowed = refusal.details.get("allowed")
    more = f" Possible now: {', '.join(allowed)}." if allowed else ""
    return f"{refusal.message}{more}"


def _comment(
    principal: Principal, issue: Issue, arguments: Mapping[str, Any], now: datetime
) -> ToolResult:
    board.comment(issue=issue, body=arguments["body"], actor=principal.actor, now=now)
    return ToolResult("The comment is in the thread.")


def _set_status(
    principal: Principal, issue: Issue, arguments: Mapping[str, Any], now: datetime
) -> ToolResult:
    status, result = arguments["status"], arguments["result"]
    changes: dict[str, Any] = {"status": status}
    if status == S.BLOCKED:
        changes["blocked_reason"] = " ".join(result.split())[:500]
    board.update(
        issue=issue,
        changes=changes,
        comment=result[:RESULT_CHARS],
        actor=principal.actor,
        now=now,
    )
    return ToolResult(f"{issue.identifier} is {status.replace('_', ' ')}.", closes=True)


def _create_sub_issue(
    principal: Principal, issue: Issue, arguments: Mapping[str, Any], now: datetime
) -> ToolResult:
    agent, problem = _agent(issue, arguments.get("assignee"))
    if problem:
        return ToolResult(problem, is_error=True)
    made = board.create(
        company=issue.company,
        actor=principal.actor,
        now=now,
        title=arguments["title"],
        description=arguments.get("description") or "",
        priority=arguments.get("priority") or "medium",
        assignee_agent=agent,
        parent=issue,
    )
    for_whom = f" for {agent.name}" if agent else ""
    return ToolResult(f"{made.identifier} “{made.title}” is created{for_whom}.")


def _agent(issue: Issue, name: str | None) -> tuple[Agent | None, str]:
    """The agent of that name, or what to tell the model."""
    if not name or not name.strip():
        return None, ""
    wanted = name.strip().removeprefix("@").lower()
    agents = list(
        Agent.objects.for_company(issue.company_id)
        .filter(status=Agent.Status.ACTIVE)
        .order_by("created_at", "id")
    )
    for agent in agents:
        if wanted in (agent.name.lower(), agent.slug, str(agent.id)):
            return agent, ""
    names = ", ".join(agent.name for agent in agents[:30])
    return None, f"Nobody here is called {name.strip()[:60]!r}. The agents are: {names}."


def _ask_operator(
    principal: Principal, issue: Issue, arguments: Mapping[str, Any], now: datetime
) -> ToolResult:
    options = [" ".join(one.split())[:200] for one in arguments.get("options") or []]
    questions.ask(
        issue=issue,
        actor=principal.actor,
        payload={
            "question": arguments["question"][:4_000],
            "options": [one for one in options if one][: questions.MAX_OPTIONS],
        },
        now=now,
    )
    return ToolResult("The people are asked. You are woken with the answer.", closes=True)


_Tool = Callable[[Principal, Issue, Mapping[str, Any], datetime], ToolResult]
_TOOLS: dict[str, _Tool] = {
    "comment": _comment,
    "set_status": _set_status,
    "create_sub_issue": _create_sub_issue,
    "ask_operator": _ask_operator,
}
