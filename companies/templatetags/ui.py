"""`{% load ui %}`: the page's own words for icons, statuses, money and time."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import template
from django.utils.safestring import SafeString, mark_safe

from companies import charts, format, markdown, undo

register = template.Library()

register.simple_tag(format.icon, name="icon")
register.simple_tag(format.glyph, name="glyph")
register.simple_tag(format.avatar, name="avatar")
register.simple_tag(format.swatch, name="swatch")
register.simple_tag(format.options, name="options")
register.simple_tag(charts.bar, name="bar")
register.simple_tag(charts.ring, name="ring")
register.simple_tag(charts.sparkline, name="sparkline")
register.filter("undo", undo.of)
register.filter("money", format.money)
register.filter("price", format.price)
register.filter("count", format.count)
register.filter("cost", format.cost)
register.filter("exact", format.exact)
register.simple_tag(format.so_far, name="so_far")
register.filter("tokens", format.tokens)
register.filter("duration", format.duration)
register.filter("label", format.label)
register.filter("moment", format.moment)


@register.filter
def ago(value: datetime | None) -> SafeString:
    return format.ago(value)


@register.filter
def elapsed(value: datetime | None) -> SafeString:
    return format.elapsed(value)


@register.filter
def since(end: datetime, start: datetime) -> str:
    """The time from `start` to `end`."""
    return format.duration((end - start).total_seconds())


@register.filter
def prose(value: str) -> SafeString:
    return markdown.render(value or "")


@register.simple_tag(takes_context=True)
def here(context: dict[str, Any], name: str) -> SafeString | str:
    """`aria-current="page"` when the page belongs to the section `name`."""
    return mark_safe('aria-current="page"') if context.get("section") == name else ""


@register.filter
def attr(thing: object, name: str) -> object:
    """The attribute of a name known only when the page is written (a filter's value)."""
    return "" if name.startswith("_") else getattr(thing, name, "")
