"""Markdown of people and agents to HTML that is safe to show. All of it is hostile input."""

from __future__ import annotations

import nh3
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt

_parser = (
    MarkdownIt("commonmark", {"html": False, "breaks": True})
    .enable("table")
    .enable("strikethrough")
)
_TAGS = {
    *("p", "br", "hr", "strong", "em", "s", "code", "pre", "blockquote", "ul", "ol", "li", "a"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"),
}
# Parsing is linear, but a page has a reader: past this the rest is shown as plain text elsewhere.
LIMIT = 100_000


def render(text: str) -> SafeString:
    """Safe HTML of `text`. Images are dropped (they would call out to whoever wrote them)."""
    html = _parser.render(text[:LIMIT])
    clean = nh3.clean(
        html,
        tags=_TAGS,
        attributes={"a": {"href"}, "ol": {"start"}},
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
    )
    return mark_safe(clean)  # noqa: S308 - nh3 has just cleaned it
