"""A browser for the tests of one module, and only for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright


@pytest.fixture(scope="module")
def browser(browser_type_launch_args: dict[str, Any]) -> Iterator[Browser]:
    # The plugin's own one keeps an event loop running in the main thread until the session ends;
    # no test that runs a loop of its own could follow.
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(**browser_type_launch_args)
        yield opened
        opened.close()
