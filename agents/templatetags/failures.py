"""`{% load failures %}`: where a failure is put right."""

from __future__ import annotations

from django import template

from agents import outcomes

register = template.Library()

register.filter("remedies", outcomes.places)
