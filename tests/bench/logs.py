"""The run log in a real browser: fifty thousand lines to read, and lines that arrive."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime
from typing import Any

from companies import live
from tests.bench.browser import signed_in
from tests.bench.report import Table, milliseconds, percentile
from tests.bench.world import World, world

LINES, LINES_AN_EVENT = 50_000, 20
VISITS = 4
APPENDS, LINES_AN_APPEND = 40, 10

_EVENTS = """
INSERT INTO agents_runevent (run_id, company_id, run_created_at, seq, epoch, kind, text, data, at)
SELECT r.id, r.company_id, r.created_at, n, 1,
    CASE WHEN n %% 25 = 0 THEN 'step' WHEN n %% 40 = 1 THEN 'stderr' ELSE 'stdout' END,
    (SELECT string_agg(E'\\x1b[32m' || to_char(n * 20 + l, 'FM000000') || E'\\x1b[0m'
        || ' compiling a module of the usual length, with its warnings' || E'\\n', '')
     FROM generate_series(1, %(lines)s::int) l),
    CASE WHEN n %% 25 = 0 THEN jsonb_build_object('id', n::text, 'name', 'shell', 'phase', 'end',
        'isError', n %% 500 = 0, 'durationMs', 1200, 'input', jsonb_build_object('command', 'make'))
    END, r.created_at + n * interval '1 second'
FROM agents_heartbeatrun r, generate_series(%(first)s::int, %(last)s::int) n WHERE r.id = %(run)s
"""
# Run before the page's own scripts: notes how long the work of each frame takes, layout included.
_WATCH = """
window.frames_ms = [];
const ask = window.requestAnimationFrame.bind(window);
window.requestAnimationFrame = (work) => ask((now) => {
  const begun = performance.now();
  work(now);
  window.frames_ms.push(performance.now() - begun);
});
"""
_PAINT = """() => new Promise((done) => {
  const seen = () => performance.getEntriesByName("first-contentful-paint")[0];
  const look = () => seen() ? done(seen().startTime) : setTimeout(look, 10);
  look();
})"""


def write(run: uuid.UUID, first: int, last: int, lines: int) -> None:
    from django.db import connection

    values = {"run": run, "first": first, "last": last, "lines": lines}
    with connection.cursor() as cursor:
        cursor.execute(_EVENTS, values)


def visit(page: Any, address: str) -> tuple[float, float, float]:
    """First paint, ready and whole load of a fresh visit, in milliseconds since its start."""
    page.goto("about:blank")
    page.goto(address, wait_until="load")
    paint = page.evaluate(_PAINT)
    times = page.evaluate(
        "() => { const n = performance.getEntriesByType('navigation')[0];"
        " return [n.responseStart, n.loadEventEnd]; }"
    )
    return paint, times[0], times[1]


def measure(the: World, table: Table) -> None:
    from tests import factories

    agent = the.agents[0]
    ended = factories.run(agent, status="succeeded", now=datetime.now(UTC))
    going_on = factories.running(agent, lease_expires_at=datetime(2100, 1, 1, tzinfo=UTC))
    for run in (ended, going_on):
        write(run.id, 1, LINES // LINES_AN_EVENT, LINES_AN_EVENT)
    base = f"/c/{the.company.issue_prefix}/runs"
    with signed_in(the) as page:
        page.add_init_script(_WATCH)
        page.goto(f"{base}/{ended.id}")  # scripts and styles are in the cache from here on
        for label, address in (
            ("the end of the log, as it opens", f"{base}/{ended.id}"),
            ("all lines", f"{base}/{ended.id}?all=1"),
            ("all lines, at line 25,000", f"{base}/{ended.id}?all=1#L25000"),
        ):
            seen = [visit(page, address) for _ in range(VISITS)]
            shown = page.locator("[data-log] .ln").count()
            for what, place in (("first answer", 1), ("first paint", 0), ("loaded", 2)):
                values = [one[place] / 1000 for one in seen]
                table.add(f"{label}: {what}", f"{shown:,}", *_figures(values))
        page.goto(f"{base}/{going_on.id}?all=1")
        page.wait_for_selector('[data-log-conn][data-state="live"]')
        page.evaluate("() => { window.frames_ms = []; }")
        first = LINES // LINES_AN_EVENT + 1
        for number in range(first, first + APPENDS):
            write(going_on.id, number, number, LINES_AN_APPEND)
            live.publish(the.company.id, "run", going_on.id)
            time.sleep(0.2)
        live.flush()
        page.wait_for_timeout(1_000)
        values = [one / 1000 for one in page.evaluate("() => window.frames_ms")]
        label = f"{LINES_AN_APPEND} more lines below {LINES:,}: work of a frame"
        table.add(label, f"{page.locator('[data-log] .ln').count():,}", *_figures(values))


def _figures(seconds: list[float]) -> tuple[object, ...]:
    low, high = (milliseconds(percentile(seconds, p)) for p in (50, 95))
    return len(seconds), low, high, milliseconds(max(seconds))


def bench() -> Table:
    table = Table(
        name="logs",
        title=f"The log of a run with {LINES:,} lines, in Chromium",
        columns=("what", "lines on the page", "samples", "p50 ms", "p95 ms", "most ms"),
        notes=["The browser, the server and the database share the machine."],
    )
    with world(agents=1, PAPERCLIP_SHIFTS="0", PAPERCLIP_WEB_WORKERS="1") as the:
        measure(the, table)
    return table
