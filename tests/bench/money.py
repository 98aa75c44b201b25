"""How fast money is kept aside and settled on the hottest row there is, whether receipts that are
sent again and again stay exact, what the costs page reads over a million events, how long a million
events need to the archive and what bookings feel of it.

With `--big`: a hundred thousand receipts instead of ten thousand, and the page over ten million
events.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from tests.bench.report import Table, milliseconds, quantiles, spread
from tests.house.instance import environment, free_port, manage

WRITERS = 8
# A short form for where only the working of it is to be seen: everything so many times smaller.
PART = int(os.environ.get("PAPERCLIP_BENCH_PART", "1"))
PAIRS = 2_400 // PART
ROUNDS = 3
BIG = "--big" in sys.argv
RECEIPTS = (100_000 if BIG else 10_000) // PART
MILLION = 1_000_000 // PART
BOOKING_SECONDS = 170
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


def writer(number: int, round_: int, gate: Any, results: multiprocessing.Queue) -> None:
    """Asks and books in turn, for its share of the pairs."""
    import django

    django.setup()
    from django.db import connection

    from agents.models import HeartbeatRun
    from billing import budgets, ledger
    from tests.billing.receipts import book

    runs = list(HeartbeatRun.objects.select_related("agent").order_by("agent__number"))
    connection.ensure_connection()
    gate.wait(BOOKING_SECONDS)
    start = time.time()
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
    results.put((took, start, time.time()))


def pairs(round_: int) -> tuple[float, list[float]]:
    answers, seconds = at_once(writer, round_)
    return PAIRS / seconds, [each for answer in answers for each in answer[0]]


def sender(number: int, round_: int, gate: Any, results: multiprocessing.Queue) -> None:
    """Sends its share of the receipts, each receipt 1 to 5 times in all and by several senders at
    once; one in ten of the repeats says something else and must be refused."""
    import django

    django.setup()
    from django.db import connection

    from agents.models import Agent
    from companies.errors import Refusal
    from tests.billing.receipts import book

    agents = list(Agent.objects.order_by("number"))
    connection.ensure_connection()
    gate.wait(BOOKING_SECONDS)
    start = time.time()
    took = []
    for receipt in range(RECEIPTS):
        for copy in range(1 + receipt % 5):
            if (receipt + copy) % WRITERS != number:
                continue
            is_altered = copy > 0 and receipt % 10 == 9
            began = time.perf_counter()
            try:
                book(agents[receipt % AGENTS], f"r{receipt}", amount(receipt) + is_altered)
            except Refusal:
                assert receipt % 10 == 9
            took.append(time.perf_counter() - began)
    results.put((took, start, time.time()))


def amount(receipt: int) -> int:
    return 1 + receipt * 7919 % 1_000


def receipts() -> tuple[float, list[float], int]:
    """Sends a second, how long each took, and how many of the receipts are not in the books exactly
    once with what they said."""
    answers, seconds = at_once(sender, 0)
    took = [each for part in answers for each in part[0]]
    with connection_cursor() as cursor:
        cursor.execute(
            "SELECT taken.key, event.cost_micros FROM billing_costkey taken "
            "JOIN billing_costevent event ON event.id = taken.event_id WHERE taken.key LIKE 'r%'"
            " AND taken.key NOT LIKE 'run:%'"
        )
        booked = cursor.fetchall()
    wrong = abs(len(booked) - RECEIPTS)
    for key, micros in booked:
        receipt = int(key[1:])
        said = {amount(receipt)} | ({amount(receipt) + 1} if receipt % 10 == 9 else set())
        wrong += micros not in said
    return len(took) / seconds, took, wrong


def connection_cursor() -> Any:
    from django.db import connection

    return connection.cursor()


def at_once(work: Callable[..., None], round_: int) -> tuple[list[Any], float]:
    """What eight processes answer that begin together, and how long the slowest took."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    gate = context.Barrier(WRITERS)
    processes = [
        context.Process(target=work, args=(number, round_, gate, results))
        for number in range(WRITERS)
    ]
    for process in processes:
        process.start()
    answers = [results.get(timeout=900) for _ in processes]
    for process in processes:
        process.join(20)
    return answers, max(a[-1] for a in answers) - min(a[-2] for a in answers)


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
    from billing import audit, incidents, reports
    from billing.views import costs
    from companies.models import Company

    company = Company.objects.get(name="Bench")
    took = []
    for _ in range(30):
        began = time.perf_counter()
        costs.month(company, now)
        for cut in (reports.by_agent, reports.by_model, reports.by_project):
            cut(company_id=company.id, now=now)
        reports.limits(company=company, now=now)
        reports.unknown(company_id=company.id)
        incidents.unresolved(company_id=company.id)
        audit.last()
        took.append(time.perf_counter() - began)
    return took


def booker(number: int, round_: int, gate: Any, results: multiprocessing.Queue) -> None:
    """Books one after the other until somebody says that it is over; a process of its own, so that
    it waits for the database only."""
    import django

    django.setup()
    from agents.models import Agent
    from tests.billing.receipts import book

    agent = list(Agent.objects.order_by("number"))[number + 1]
    gate.wait(BOOKING_SECONDS)
    start = time.time()
    over, took = start + BOOKING_SECONDS, []
    while time.time() < over and not Path(os.environ["BENCH_OVER"]).exists():
        began = time.perf_counter()
        book(agent, f"meanwhile {start} {number} {len(took)}", 1)
        took.append(time.perf_counter() - began)
    results.put((took, start, time.time()))


def while_booking(folder: Path, work: Callable[[], None]) -> tuple[float, list[float]]:
    """Seconds that `work` takes while two writers book, and how long their bookings took."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    over = folder.with_name("over")
    over.unlink(missing_ok=True)
    os.environ["BENCH_OVER"] = str(over)
    gate = context.Barrier(3)
    processes = [
        context.Process(target=booker, args=(number, 0, gate, results)) for number in (0, 1)
    ]
    for process in processes:
        process.start()
    gate.wait(BOOKING_SECONDS)
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    over.touch()
    took = [each for _ in processes for each in results.get(timeout=120)[0]]
    for process in processes:
        process.join(20)
    return seconds, took


def bench() -> Table:
    table = Table(
        name="money",
        title="Money: reserve and settle, the costs page, the archive",
        columns=("what", "figure", "p50 ms", "p95 ms", "p99 ms"),
        notes=[
            f"{WRITERS} writers are processes of their own on one company with two limits; each "
            "pair is a grant and a booking through Django. One receipt in ten is also sent with "
            "another amount, of which one is refused. The page is all that the costs page reads, "
            "without the template. The two writers are processes as well and share two cores with "
            "the archive: compare their longest with the row before.",
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

    rate, took, wrong = receipts()
    table.add(
        f"{RECEIPTS:,} receipts, each sent 1 to 5 times, sends/s", f"{rate:,.0f}", *quantiles(took)
    )
    assert wrong == 0, wrong
    drifts = audit.drifts()
    assert drifts == [], drifts
    table.add("of them not booked exactly once, micro-dollars off", "0, 0", "", "", "")

    month = datetime(2025, 3, 1, tzinfo=UTC)
    now = datetime(2025, 3, 29, 12, tzinfo=UTC)
    fill(MILLION, month)
    table.add(f"costs page over {MILLION:,} events", "", *quantiles(page(now)))
    _, took = while_booking(folder, lambda: time.sleep(10))
    table.add(
        "two writers book, nothing else: longest, ms", milliseconds(max(took)), *quantiles(took)
    )
    seconds, took = while_booking(folder, lambda: archive_a_month(month.date(), folder))
    table.add(f"archive of {MILLION:,} events, seconds", f"{seconds:.1f}", "", "", "")
    table.add("two writers meanwhile: longest, ms", milliseconds(max(took)), *quantiles(took))
    if BIG:
        month = datetime(2025, 5, 1, tzinfo=UTC)
        fill(10 * MILLION, month)
        now = datetime(2025, 5, 29, 12, tzinfo=UTC)
        table.add(f"costs page over {10 * MILLION:,} events", "", *quantiles(page(now)))


def archive_a_month(month: date, folder: Path) -> None:
    from django.utils import timezone

    from billing import archive

    archive.archive(table="billing_costevent", month=month, folder=folder, now=timezone.now())
