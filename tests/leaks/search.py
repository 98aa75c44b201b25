"""Looks at everything that an instance shows to somebody, for texts that must not be there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import httpx
import psycopg
from psycopg import sql

from tests.house.instance import Instance

MOST_PAGES = 400  # for a caller; more is a crawl that goes in circles
_NOT_FOLLOWED = re.compile(r"/sign-out|/admin/logout|/admin/jsi18n|^/api/docs")


@dataclass
class Finds:
    """What was found where, of which secrets, and how much was looked at."""

    wanted: Mapping[str, str]
    found: dict[str, set[str]] = field(default_factory=dict)
    looked_at: dict[str, int] = field(default_factory=dict)

    def look(self, kind: str, where: str, text: str) -> None:
        self.looked_at[kind] = self.looked_at.get(kind, 0) + 1
        for name, value in self.wanted.items():
            if value in text or value in unquote(text):
                self.found.setdefault(name, set()).add(f"{kind} {where}")


class _Links(HTMLParser):
    """Everything that a page would fetch or lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {"href", "src", "hx-get", "data-src"}
        self.found += [value for name, value in attrs if name in named and value]


def crawl(client: httpx.Client, role: str, finds: Finds, *starts: str) -> set[str]:
    """Every page that is reached by links from the first ones; the paths that answered."""
    waiting, seen, answered = list(starts), set(starts), set()
    while waiting and len(seen) <= MOST_PAGES * 4 and len(answered) < MOST_PAGES:
        path = waiting.pop(0)
        answer = client.get(path)
        _look_at(answer, "page", f"{path} as {role}", finds)
        if answer.status_code == 200:
            answered.add(path)
        if not answer.headers.get("content-type", "").startswith("text/html"):
            if location := answer.headers.get("location"):
                _follow(urljoin(path, location), seen, waiting)
            continue
        for link in _Links(answer.text).found:
            _follow(urljoin(path, link), seen, waiting)
    return answered


def _follow(address: str, seen: set[str], waiting: list[str]) -> None:
    parts = urlsplit(address)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    # One of each kind of ordering and paging is enough of the admin's lists.
    kind = re.sub(r"([?&](o|e|p|q|all)=)[^&]*", r"\1", path) if "/admin/" in path else path
    if parts.netloc or not path.startswith("/") or _NOT_FOLLOWED.search(path) or kind in seen:
        return
    seen.add(kind)
    waiting.append(path)


def _look_at(answer: httpx.Response, kind: str, where: str, finds: Finds) -> None:
    headers = "\n".join(f"{name}: {value}" for name, value in answer.headers.items())
    finds.look("header", where, headers)
    finds.look(kind, where, answer.text)


def ask_all(
    client: httpx.Client, role: str, finds: Finds, known: Mapping[str, Iterable[str]]
) -> set[str]:
    """Every route of the API that only reads, for every known id; those that answered."""
    answered = set()
    for route, verbs in client.get("/api/openapi.json").json()["paths"].items():
        if "get" not in verbs or route.endswith("/stream"):
            continue
        for path in _filled(route, known):
            answer = client.get(path)
            _look_at(answer, "answer", f"{path} as {role}", finds)
            if answer.status_code == 200:
                answered.add(route)
    return answered


def _filled(route: str, known: Mapping[str, Iterable[str]]) -> Iterator[str]:
    name = re.search(r"\{(\w+)\}", route)
    if name is None:
        yield route
        return
    for one in known.get(name[1], ()):
        yield from _filled(route.replace(name[0], one, 1), known)


def listen(client: httpx.Client, path: str, finds: Finds, *, lines: int) -> None:
    """The first lines of a stream; one that is silent for long has nothing more."""
    with client.stream("GET", path, timeout=3) as stream:
        assert stream.status_code == 200, (path, stream.status_code)
        heard = []
        try:
            for line in stream.iter_lines():
                heard.append(line)
                if len(heard) >= lines:
                    break
        except httpx.ReadTimeout:
            pass
        finds.look("stream", path, "\n".join(heard))


def rows(database: str, finds: Finds) -> None:
    """Every row of every table, as text."""
    with psycopg.connect(database, autocommit=True) as conn:
        tables = conn.execute(
            "SELECT schemaname, tablename FROM pg_tables"
            " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        ).fetchall()
        for schema, table in tables:
            statement = sql.SQL("SELECT t::text FROM {} AS t").format(sql.Identifier(schema, table))
            for (row,) in conn.execute(statement):
                finds.look("row", f"of {table}", row)


def processes(instance: Instance, finds: Finds) -> None:
    for process in instance.family():
        finds.look("command line", str(process.pid), "\0".join(process.cmdline()))


def files(folder: Path, finds: Finds, *, but: tuple[str, ...] = ()) -> None:
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_file() and not path.is_symlink() and not set(parts) & set(but):
            finds.look("file", str(path), path.read_bytes().decode("utf-8", "replace"))
