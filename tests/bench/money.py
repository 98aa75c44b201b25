"""How fast money is kept aside and settled on the hottest row there is, what the costs page reads
over a million and ten million events, and how long a million events need to the archive."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import threading
import time
from datetime import UTC, date, datetime
from pathlib import Path

from tests.bench.report import Table, milliseconds, quantiles, spread
from tests.house.instance import environment, free_port, manage

WRITERS = 8
PAIRS = 2_400
ROUNDS = 3
MILLION = 1_000_000
AGENTS = 50
MODELS = 4


def seed() -> None:
    """A company with two limits, its agents with a run each, and a price."""
    from agents.models import HeartbeatRun
    from billing import budgets, prices
    from companies import activity
    from tests import factories

    company = factories.company("Bench", "BEN")
    agents = [factories.agent(company, f"Agent {number}") for number in range(AGENTS)]
    for agent in agents:
        factories.run(agent, status=HeartbeatRun.Status.RUNNING)
    prices.set_price(
        company=company,
        model="m",
        input_pico=10**6,
        output_pico=10**6,
        actor=activity.SYSTEM,
        now=company.created_at,
    )
    for scope, row in (("company", company), ("agent", agents[0])):
        budgets.set_limit(
            company=company,
            scope=scope,
            scope_id=row.id,
            limit_micros=10**12,
            actor=activity.SYSTEM,
        )


def writer(number: int, round_: int, start: float, results: multiprocessing.Queue) -> None:
    """Asks and books in turn, for its share of the pairs."""
    import django

    django.setup()
    from django.db import connection

    from agents.models import HeartbeatRun
    from billing import budgets, ledger
    from tests.billing.receipts import book

    runs = list(HeartbeatRun.objects.select_related("agent").order_by("agent__number"))
    connection.ensure_connection()
    while time.time() < start:
        time.sleep(0.001)
    took = []
    for pair in range(PAIRS // WRITERS):
        run = runs[(number * 5 + pair) % len(runs)]
        began = time.perf_counter()
        budgets.check_call(
            agent=run.agent,
            run_id=run.id,
            provider="p",
            model="m",
            input_tokens=500,
            max_output_tokens=500,
        )
        call = (round_ * WRITERS + number) * PAIRS + pair
        book(run.agent, ledger.run_key(run.id, call), 700, run_id=run.id)
        took.append(time.perf_counter() - began)
    results.put((took, time.time()))


def pairs(round_: int) -> tuple[float, list[float]]:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    start = time.time() + 6
    writers = [
        context.Process(target=writer, args=(number, round_, start, results))
        for number in range(WRITERS)
    ]
    for process in writers:
        process.start()
    answers = [results.get(timeout=300) for _ in writers]
    for process in writers:
        process.join(20)
    took = [each for part, _ in answers for each in part]
    return PAIRS / (max(end for _, end in answers) - start), took


FILL = """
INSERT INTO billing_costevent (id, company_id, agent_id, billing_code, provider, biller,
    billing_type, model, input_tokens, cache_read_tokens, cache_write_tokens,
    cache_write_1h_tokens, output_tokens, reasoning_tokens, usage_source, cost_micros, cost_status,
    price_source, price_version, note, occurred_at, recorded_at)
SELECT gen_random_uuid(), a.company_id, a.id, '', 'p', 'p', 'metered_api',
    'model ' || n %% %(models)s, 1000, 500, 0, 0, 100, 0, 'reported', 100 + n %% 900, 'reported',
    'provider', '', '', moment.at, moment.at
FROM generate_series(1, %(rows)s) n
JOIN (SELECT id, company_id, row_number() OVER (ORDER BY number) - 1 AS place FROM agents_agent) a
  ON a.place = n %% %(agents)s
CROSS JOIN LATERAL (
    SELECT %(start)s::timestamptz + make_interval(secs => n %% 2400000) AS at) moment
"""
ROLL_UP = """
INSERT INTO billing_daycost (company_id, day, agent_id, project_id, provider, model, spent_micros,
    events, unpriced_events, tokens, input_tokens, cached_tokens, output_tokens, last_at)
SELECT company_id, (occurred_at AT TIME ZONE 'UTC')::date, agent_id, project_id, provider, model,
    SUM(cost_micros), COUNT(*), 0, COUNT(*) * 600, SUM(input_tokens), SUM(cache_read_tokens),
    SUM(output_tokens), MAX(occurred_at)
FROM billing_costevent WHERE occurred_at >= %(start)s GROUP BY 1, 2, 3, 4, 5, 6
ON CONFLICT (company_id, day, agent_id, project_id, provider, model) DO UPDATE
   SET spent_micros = excluded.spent_micros, events = excluded.events, tokens = excluded.tokens
"""


def fill(rows: int, month: datetime) -> None:
    from django.db import connection

    from companies import partitions

    partitions.ensure("billing_costevent", now=month, ahead=0)
    with connection.cursor() as cursor:
        values = {"rows": rows, "start": month, "agents": AGENTS, "models": MODELS}
        cursor.execute(FILL, values)
        cursor.execute(ROLL_UP, {"start": month})
        cursor.execute("ANALYZE billing_costevent, billing_daycost")


def page(now: datetime) -> list[float]:
    """Everything that the costs page reads, in seconds, thirty times."""
    from billing import forecast, reports
    from companies.models import Company

    company = Company.objects.get(name="Bench")
    took = []
    for _ in range(30):
        began = time.perf_counter()
        reports.month(company_id=company.id, now=now)
        reports.daily(company_id=company.id, now=now)
        for cut in (reports.by_agent, reports.by_model, reports.by_project):
            cut(company_id=company.id, now=now)
        reports.limits(company=company, now=now)
        forecast.month_end(company_id=company.id, now=now)
        took.append(time.perf_counter() - began)
    return took


def archive_a_month(month: date, folder: Path) -> tuple[float, float]:
    """Seconds to the archive, and the longest that a booking waited meanwhile."""
    from django.db import connection
    from django.utils import timezone

    from agents.models import Agent
    from billing import archive
    from tests.billing.receipts import book

    waits: list[float] = []
    over = threading.Event()
    agent = Agent.objects.order_by("number")[1]

    def write() -> None:
        number = 0
        while not over.is_set():
            began = time.perf_counter()
            book(agent, f"meanwhile {number}", 1)
            waits.append(time.perf_counter() - began)
            number += 1
        connection.close()

    writing = threading.Thread(target=write)
    writing.start()
    began = time.perf_counter()
    archive.archive(table="billing_costevent", month=month, folder=folder, now=timezone.now())
    seconds = time.perf_counter() - began
    over.set()
    writing.join(30)
    return seconds, max(waits)


def bench() -> Table:
    table = Table(
        name="money",
        title="Money: reserve and settle, the costs page, the archive",
        columns=("what", "figure", "p50 ms", "p95 ms", "p99 ms"),
        notes=[
            f"{WRITERS} writers are processes of their own on one company with two limits; each "
            "pair is a grant and a booking through Django. The page is all that the costs page "
            "reads, without the template. A writer books all the while that the archive works.",
        ],
    )
    with tempfile.TemporaryDirectory(prefix="paperclip-bench-") as folder:
        os.chmod(folder, 0o755)
        data = Path(folder) / "data"
        os.environ.update(
            environment(data, free_port()), DJANGO_SETTINGS_MODULE="paperclip.settings"
        )
        import django

        django.setup()
        from django.conf import settings
        from django.db import connections

        from paperclip import postgres

        server = postgres.start(settings.PG_DIR)
        try:
            postgres.create_database(settings.PG_DIR, "paperclip")
            done = manage("migrate", "-v", "0", env=dict(os.environ))
            assert done.returncode == 0, done.stderr
            seed()
            measure(table, data / "archive")
        finally:
            connections.close_all()
            server.stop()
    return table


def measure(table: Table, folder: Path) -> None:
    from billing import audit

    rates, took = [], []
    for number in range(ROUNDS):
        rate, part = pairs(number)
        rates.append(rate)
        took += part
    table.add(
        f"reserve and settle, pairs/s, median of {ROUNDS} rounds", spread(rates), *quantiles(took)
    )
    drifts = audit.drifts()
    assert drifts == [], drifts
    table.add("micro-dollars that the books disagree on", 0, "", "", "")

    month = datetime(2025, 3, 1, tzinfo=UTC)
    now = datetime(2025, 3, 29, 12, tzinfo=UTC)
    sizes = [MILLION, 10 * MILLION] if os.environ.get("PAPERCLIP_BENCH_BIG") else [MILLION]
    filled = 0
    for rows in sizes:
        fill(rows - filled, month)
        filled = rows
        table.add(f"costs page over {rows:,} events", "", *quantiles(page(now)))
    seconds, longest = archive_a_month(month.date(), folder)
    table.add(f"archive of {filled:,} events, seconds", f"{seconds:.1f}", "", "", "")
    table.add("longest booking meanwhile, ms", milliseconds(longest), "", "", "")
