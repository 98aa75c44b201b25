"""Many addresses as a tree, so that finding one takes a few steps and not a try for each.

Django tries a list from the top. The API has some two hundred addresses, and going through them
took a tenth of a short request.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from django.urls import Resolver404, ResolverMatch, URLPattern, URLResolver, path
from django.urls.resolvers import RoutePattern

MOST_KNOWN = 2_000  # addresses, in each process
LONGEST_KNOWN = 200  # letters: with ids, the longest of ours has some 120


class Branch(URLResolver):
    """What lies below a step of an address: words are looked up, then parameters are tried."""

    @functools.cached_property
    def _by_word(self) -> dict[str, list[URLPattern | URLResolver]]:
        """The addresses below by their first step; under "" those that begin with a parameter."""
        found: dict[str, list[URLPattern | URLResolver]] = {}
        for pattern in self.url_patterns:
            step = _first_step(str(pattern.pattern))
            found.setdefault("" if "<" in step else step, []).append(pattern)
        return found

    def resolve(self, path: str) -> ResolverMatch:
        """Find what an address leads to. Raises Resolver404, without all that was tried."""
        here = self.pattern.match(path)
        if here is None:
            raise Resolver404({"path": path})
        rest, _, given = here
        for pattern in (*self._by_word.get(_first_step(rest), ()), *self._by_word.get("", ())):
            try:
                below = pattern.resolve(rest)
            except Resolver404:
                continue
            if below is not None:
                return _joined(pattern, below, given)
        raise Resolver404({"path": rest, "tried": []})


def _first_step(route: str) -> str:
    step, slash, _ = route.partition("/")
    return step + slash


def _joined(
    pattern: URLPattern | URLResolver, below: Any, given: Mapping[str, Any]
) -> ResolverMatch:
    step = str(pattern.pattern) if isinstance(pattern, URLResolver) else ""
    return ResolverMatch(
        below.func,
        below.args,
        {**given, **below.kwargs},
        below.url_name,
        below.app_names,
        below.namespaces,
        step + below.route,
        captured_kwargs=below.captured_kwargs,
        extra_kwargs=below.extra_kwargs,
    )


class _Remembered(Branch):
    """Remembers what addresses that are asked for again have led to."""

    @functools.cached_property
    def _known(self) -> Any:
        return functools.lru_cache(maxsize=MOST_KNOWN)(super().resolve)

    def resolve(self, path: str) -> ResolverMatch:
        if len(path) > LONGEST_KNOWN:
            return super().resolve(path)
        found: ResolverMatch = self._known(path)
        return found


def branch(patterns: Iterable[URLPattern]) -> Branch:
    """These addresses as one entry of a list of them."""
    return _Remembered(RoutePattern(""), tree(patterns))


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
        Branch(RoutePattern(f"{step}/"), tree(inside)) for step, inside in below.items()
    ]
    return sorted([*leaves, *branches], key=lambda one: str(one.pattern).startswith("<"))
