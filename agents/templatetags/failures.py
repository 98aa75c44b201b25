"""`{% load failures %}`: where a failure is put right."""

from __future__ import annotations

from django import template

from agents import outcomes
from agents.models import Agent

register = template.Library()


register.filter("outcome", outcomes.title)


@register.filter
def remedies(code: str, agent: Agent | object) -> tuple[str, ...]:
    """The places for the buttons beside a failure of this agent."""
    unconnected = isinstance(agent, Agent) and agent.connection_id is None
    return outcomes.places(code, connected=not unconnected)
