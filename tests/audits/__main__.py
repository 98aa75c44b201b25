"""Lighthouse over the main pages of a demo instance, at a desk and on a phone, and a table of it.

`make lighthouse` installs Lighthouse as its lock file pins it, for this alone. The command fails
when a page has less than `LEAST` points. Reports lie in `.cache/lighthouse/`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.bench.browser import FLAGS, chromium
from tests.flows import office
from tests.house.instance import ROOT, Instance, free_port

LEAST = 95
PAGES = {
    "home": "",
    "issues": "issues/",
    "board": "issues/board",
    "issue": "issues/ACM-1",
    "costs": "costs/",
}
SIZES: dict[str, tuple[str, ...]] = {"desk": ("--preset=desktop",), "phone": ()}
PARTS = ("performance", "accessibility")
PATIENCE_SECONDS = 180
_HERE = Path(__file__).parent


@contextmanager
def signed_in(instance: Instance, profile: Path) -> Iterator[int]:
    """A browser in which the demo's operator is signed in; the port by which it is led."""
    port = free_port()
    flags = [*FLAGS, f"--remote-debugging-port={port}"]
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            profile, executable_path=chromium(), args=flags
        )
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{instance.port}/sign-in")
        page.get_by_label("Email").fill(office.EMAIL)
        page.get_by_label("Password").fill(office.PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/c/**")
        page.close()
        yield port
        context.close()


def audit(address: str, port: int, report: Path, *more: str) -> dict[str, int]:
    """Points by part, of 100. Raises CalledProcessError when Lighthouse could not look."""
    command = [
        str(_HERE / "node_modules" / ".bin" / "lighthouse"),
        *(address, "--quiet", "--output=json", f"--output-path={report}"),
        *(f"--only-categories={','.join(PARTS)}", f"--port={port}"),
        *("--disable-storage-reset", "--no-enable-error-reporting"),
        *more,
    ]
    subprocess.run(command, check=True, timeout=PATIENCE_SECONDS)
    found = json.loads(report.read_text())
    # A page that led elsewhere, to sign in say, is not the one that was asked for.
    assert found["finalDisplayedUrl"] == address, found["finalDisplayedUrl"]
    return {part: round((found["categories"][part]["score"] or 0) * 100) for part in PARTS}


def main() -> int:
    reports = ROOT / ".cache" / "lighthouse"
    reports.mkdir(parents=True, exist_ok=True)
    short = 0
    with tempfile.TemporaryDirectory(prefix="paperclip-audits-") as folder:
        with (
            office.instance(Path(folder), PAPERCLIP_DEMO="1") as instance,
            signed_in(instance, Path(folder) / "browser") as port,
        ):
            print(f"| page | size | {' | '.join(PARTS)} |\n|---|---|{'---:|' * len(PARTS)}")
            for name, path in PAGES.items():
                for size, more in SIZES.items():
                    address = f"http://127.0.0.1:{instance.port}/c/ACM/{path}"
                    points = audit(address, port, reports / f"{name}-{size}.json", *more)
                    print(
                        f"| {name} | {size} | {' | '.join(map(str, points.values()))} |", flush=True
                    )
                    short += min(points.values()) < LEAST
    return min(short, 1)


if __name__ == "__main__":
    sys.exit(main())
