"""Many addresses as a tree, so that finding one takes a few comparisons and not one for each.

Django tries a flat list from the top. The API has some two hundred addresses, and going through
them took a tenth of a short request.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.urls import URLPattern, URLResolver, include, path


def tree(patterns: Iterable[URLPattern]) -> list[URLPattern | URLResolver]:
    """The same addresses, grouped by their first step, those by their next, and so on.

    Every pattern must be one of `path()` without arguments of its own. A step that is a word goes
    before one that is a parameter: `agents/me` is never the agent called "me".
    """
    leaves: list[URLPattern | URLResolver] = []
    below: dict[str, list[URLPattern]] = {}
    for pattern in patterns:
        step, slash, rest = str(pattern.pattern).partition("/")
        if slash:
            below.setdefault(step, []).append(path(rest, pattern.callback, name=pattern.name))
        else:
            leaves.append(pattern)
    branches: list[URLPattern | URLResolver] = [
        path(f"{step}/", include(tree(inside))) for step, inside in below.items()
    ]
    return sorted([*leaves, *branches], key=lambda one: str(one.pattern).startswith("<"))
