"""Pictures for the docs: an instance with the demo company, looked at by headless Chromium.

    .venv/bin/python -m scripts.screenshots          (needs the development requirements)

Starts an instance of its own on a free port, waits until agents are at work, writes PNGs to
docs/screenshots/ and stops it again.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tests.house.instance import Instance

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "screenshots"
EMAIL, PASSWORD = "olga@example.com", "correct horse battery"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SIZES = {"desktop": (1440, 900), "phone": (390, 844)}
COMPANY = "/c/ACM"


def sign_in(browser: Browser, base: str, size: str, scheme: str) -> Page:
    width, height = SIZES[size]
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page = context.new_page()
    page.goto(f"{base}/sign-in")
    page.fill("input[name=email]", EMAIL)
    page.fill("input[name=password]", PASSWORD)
    page.press("input[name=password]", "Enter")
    page.wait_for_url(f"{base}/c/**")
    return page


def write_an_issue(page: Page, base: str) -> str:
    """Give a demo agent something to do; the address of its issue."""
    page.goto(f"{base}{COMPANY}/issues/new")
    page.fill("input[name=title]", "Summarise what changed last week")
    page.fill("textarea[name=description]", "Three sentences for the team, please.")
    agents = page.locator("select[name=assignee] option")
    chosen = next(o for o in agents.all() if "Ellis" in (o.text_content() or ""))
    page.select_option("select[name=assignee]", value=chosen.get_attribute("value") or "")
    page.locator("button[data-default]:visible").first.click()
    page.wait_for_url("**/issues/ACM-*")
    return page.url


def take(page: Page, name: str) -> None:
    page.wait_for_timeout(1500)
    page.screenshot(path=FOLDER / f"{name}.png")
    sys.stdout.write(f"docs/screenshots/{name}.png\n")


def picture(browser: Browser, base: str) -> None:
    page = sign_in(browser, base, "desktop", "light")
    issue = write_an_issue(page, base)
    page.locator("main .run-fold summary").first.click()  # unfold the running run
    page.wait_for_timeout(5000)
    take(page, "issue")
    page.goto(base + COMPANY + "/")
    take(page, "home")
    for path, name in (
        ("/issues/", "issues"),
        ("/agents/", "agents"),
        ("/inbox/", "inbox"),
        ("/runs/", "runs"),
    ):
        page.goto(base + COMPANY + path)
        take(page, name)
    page.goto(issue)
    link = page.locator("main a[href*='/runs/']").first.get_attribute("href")
    page.goto(base + (link or ""))
    take(page, "run")
    page = sign_in(browser, base, "desktop", "dark")
    page.goto(base + COMPANY + "/issues/board")
    take(page, "board-dark")
    page = sign_in(browser, base, "phone", "light")
    take(page, "home-phone")


def main() -> int:
    chromium = os.environ.get("PAPERCLIP_CHROMIUM", "/usr/bin/chromium")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="paperclip-shots-") as folder:
        os.chmod(folder, 0o755)  # noqa: S103 - the database runs as another user
        instance = Instance(
            Path(folder) / "data",
            PAPERCLIP_DEMO="1",
            PAPERCLIP_ADMIN_EMAIL=EMAIL,
            PAPERCLIP_ADMIN_PASSWORD=PASSWORD,
        ).start()
        try:
            with sync_playwright() as play:
                browser = play.chromium.launch(executable_path=chromium, args=FLAGS)
                picture(browser, f"http://127.0.0.1:{instance.port}")
                browser.close()
        finally:
            instance.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
