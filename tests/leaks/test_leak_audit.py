"""The leak audit: twenty secrets in every place where one can be, and everything that an instance
shows is searched for them. A text that is not hidden is planted beside them and must be found, or
the search has not looked."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from psycopg.conninfo import conninfo_to_dict
from pytest_django.plugin import DjangoDbBlocker

from tests.deploy import estate
from tests.flows import office as offices
from tests.flows.office import EMAIL, Office
from tests.house.instance import ROOT, Instance
from tests.leaks import planted as planting
from tests.leaks import search
from tests.leaks.planted import CONTROL, Planted
from tests.leaks.search import Finds

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PEOPLE = (EMAIL, "operator@example.com", "viewer@example.com", "rival@example.com")


def cookie(client: httpx.Client, kind: str) -> str:
    """Its name has the port in it, so that instances on one machine keep apart."""
    return next(value for name, value in client.cookies.items() if kind in name)


@dataclass
class Place:
    """An instance whose database has a password, its office, and what is hidden in it."""

    instance: Instance
    office: Office
    planted: Planted
    database: str

    @contextmanager
    def signed_in(self, email: str) -> Iterator[httpx.Client]:
        with self.stranger() as client:
            client.get("/sign-in")
            form = {
                "email": email,
                "password": self.planted.password,
                "csrfmiddlewaretoken": cookie(client, "csrf"),
            }
            assert client.post("/sign-in", data=form).status_code == 302, email
            yield client

    def stranger(self) -> httpx.Client:
        return httpx.Client(
            base_url=f"http://127.0.0.1:{self.instance.port}", timeout=30, trust_env=False
        )


@pytest.fixture(scope="module")
def place(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Place]:
    with (
        tempfile.TemporaryDirectory(prefix="paperclip-test-") as name,
        django_db_blocker.unblock(),
        estate.database() as database,
        planting.echo() as url,
    ):
        known, admin = planting.environment(), planting.value("admin")
        password, at = planting.value("database"), conninfo_to_dict(database)
        env = known | {
            "PAPERCLIP_ADMIN_PASSWORD": admin,
            "DATABASE_URL": f"postgresql://{at['user']}:{password}@/{at['dbname']}?host={at['host']}",
        }
        hidden = {**known, "password of the database": password, "password of the operator": admin}
        with offices.instance(Path(name), **env) as instance, Office(instance) as office:
            planted = planting.plant(office, url, Path(name), admin, hidden)
            yield Place(instance, office, planted, database)


@pytest.fixture(scope="module")
def finds(place: Place) -> Finds:
    """Everything has been looked at."""
    planted = place.planted
    finds = Finds({**planted.secrets, "the control": CONTROL})
    for email in PEOPLE:
        with place.signed_in(email) as client:
            finds.wanted = {**finds.wanted, f"session of {email}": cookie(client, "session")}
            _as_person(place, client, email, finds)
    with place.stranger() as client:
        search.crawl(client, "nobody", finds, "/", "/sign-in", "/c/ACM/", "/admin/", "/metrics")
        search.ask_all(client, "nobody", finds, _ids(place))
    for token in ("agent key", "run token"):
        with place.stranger() as client:
            client.headers["authorization"] = f"Bearer {planted.secrets[token]}"
            search.ask_all(client, token, finds, _ids(place))
    search.rows(place.database, finds)
    search.processes(place.instance, finds)
    search.files(place.instance.data_dir, finds)
    finds.look("log", "of the instance", place.instance.output())
    search.files(ROOT / "paperclip" / "static", finds)
    return finds


def _ids(place: Place) -> dict[str, list[str]]:
    """What a route's parameter may be."""
    office, planted = place.office, place.planted
    runs = [office.get(f"/issues/{issue}/runs")[0]["id"] for issue in planted.issues]
    return {
        "company": [office.company],
        "issue": planted.issues,
        "agent": planted.agents,
        "run": runs,
        "run_id": runs,
        "connection": [one["id"] for one in office.get(f"/companies/{office.company}/connections")],
    }


def _as_person(place: Place, client: httpx.Client, email: str, finds: Finds) -> None:
    starts = ["/", "/c/ACM/", "/scaling", "/styleguide/", "/api/docs", "/api/openapi.json"]
    search.crawl(client, email, finds, *starts, "/admin/")
    search.ask_all(client, email, finds, _ids(place))
    if email == EMAIL:
        for run in _ids(place)["run"]:
            path = f"/api/heartbeat-runs/{run}/stream"
            search.listen(client, path, finds, lines=200)


def test_no_secret_is_anywhere(place: Place, finds: Finds) -> None:
    # A row of the sessions' table is what a session is.
    found = {name: sorted(places) for name, places in finds.found.items() if name != "the control"}
    for name in list(found):
        if name.startswith("session of "):
            found[name] = [one for one in found[name] if one != "row of django_session"]
    assert not any(found.values()), "\n".join(f"{n}: {w}" for n, ws in found.items() for w in ws)
    assert len(finds.wanted) > 20


def test_what_is_not_hidden_is_found_wherever_it_is_shown(finds: Finds) -> None:
    kinds = {place.split()[0] for place in finds.found["the control"]}
    assert {"page", "answer", "stream", "row"} <= kinds
    pages = {place for place in finds.found["the control"] if place.startswith("page ")}
    for part in ("/issues/ ", "/issues/table.csv", "/log.txt", "/admin/", "/board", "/runs/"):
        assert any(part in f"{page} " for page in pages), (part, sorted(pages)[:50])
    for email in PEOPLE[:3]:
        assert any(page.endswith(email) for page in pages), email
    assert not any("rival" in page or "nobody" in page for page in pages)
    # All kinds of places were looked at, and not a few.
    assert min(finds.looked_at[kind] for kind in ("page", "answer", "header", "row")) > 200
    assert finds.looked_at["command line"] > 5
    assert finds.looked_at["file"] > 10


def test_a_leak_that_is_planted_is_caught(place: Place, finds: Finds) -> None:
    """Somebody writes a key into a title, and a program's folder keeps another."""
    secret = place.planted.secrets["UNUSED_KEY"]
    place.office.post(f"/companies/{place.office.company}/issues", title=f"Use {secret}")
    (place.instance.data_dir / "note").write_text(place.planted.secrets["MODEL_KEY"])
    again = Finds(place.planted.secrets)
    with place.signed_in("viewer@example.com") as client:
        search.crawl(client, "viewer", again, "/c/ACM/issues/?status=all")
    search.files(place.instance.data_dir, again)
    (place.instance.data_dir / "note").unlink()
    assert {"UNUSED_KEY", "MODEL_KEY"} == set(again.found)


def test_the_repository_holds_no_key() -> None:
    """By their form: keys of providers, of ours, and of private keys."""
    form = re.compile(
        r"sk-(?:ant-|proj-)?[A-Za-z0-9_-]{32,}|pc[bpr]_[A-Za-z0-9_-]{30,}|AKIA[0-9A-Z]{16}"
        r"|-----BEGIN [A-Z ]*PRIVATE KEY-----|gh[pousr]_[A-Za-z0-9]{36}"
    )
    named = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    assert len(named) > 500
    found = [
        (name, text)
        for name in filter(None, named)
        if (ROOT / name).is_file()
        for text in form.findall((ROOT / name).read_text("utf-8", "replace"))
    ]
    assert found == []
