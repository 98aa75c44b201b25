"""A real browser for the benches that need a screen: Chromium, signed in, beside an instance."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import CDPSession, Page, sync_playwright

from tests.bench.pages import session_cookie
from tests.bench.world import World

PATIENCE_MS = 120_000  # a busy machine is slow, not broken
SIZE = {"width": 1440, "height": 900}
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


def chromium() -> str:
    found = os.environ.get("PAPERCLIP_CHROMIUM") or next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    assert found, "This benchmark needs Chromium; PAPERCLIP_CHROMIUM says where it is."
    return found


@contextmanager
def signed_in(the: World) -> Iterator[Page]:
    """A page of a browser in which the company's owner is signed in."""
    # Playwright keeps a loop in this thread, where the ORM would refuse to work.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    name, value = session_cookie(the).split("=", 1)
    address = f"http://127.0.0.1:{the.port}"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        context = browser.new_context(viewport=SIZE, base_url=address)  # type: ignore[arg-type]
        context.add_cookies([{"name": name, "value": value, "url": address}])
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        yield page
        browser.close()


def heap(session: CDPSession) -> tuple[float, int]:
    """Megabytes of the page's scripts after a collection of garbage, and how many nodes live."""
    for _ in range(3):
        session.send("HeapProfiler.collectGarbage")
    given: Any = session.send("Performance.getMetrics")["metrics"]
    metrics = {one["name"]: one["value"] for one in given}
    return metrics["JSHeapUsedSize"] / 2**20, int(metrics["Nodes"])
