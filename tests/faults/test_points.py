"""kill -9 at each named point of a run's way, and a loop that stands still."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from agents.models import HeartbeatRun, Worker
from billing.models import CostEvent, Reservation
from companies.faultpoints import VARIABLE
from tests.faults import company as firm
from tests.faults.nursery import Nursery
from tests.faults.processes import Processes, until
from tests.faults.quick import COST_MICROS

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(300)]

# In the order in which a run passes them, with what is lost when the process ends there.
POINTS = {
    "claiming": "before the claim's commit",
    "claimed": "after the claim, before the checkout",
    "opened": "after the checkout, before the adapter",
    "reserved": "after the budget was reserved",
    "streaming": "in the middle of the answer",
    "answered": "after the answer, before its cost is booked",
    "settled": "after the cost is booked",
    "written": "after the output is written, before the report",
    "reported": "in the end's transaction, after the report",
    "finished": "in the end's transaction, before its commit",
    "committed": "after the end's commit",
    "notifying": "between a commit and its notice",
}
ACCEPTED = {"committed", "notifying"}  # what the killed process did before may stand


def all_ended() -> bool:
    return firm.open_count() == 0 and firm.running() == 0


@pytest.mark.fault("T3", "kill -9 at each named point, one after the other")
def test_a_shift_dies_at_each_point_and_nothing_is_lost_or_doubled(
    processes: Processes, acme, figures
):
    """Twelve shifts at once, each of which dies at another point; a thirteenth clears up."""
    agents = firm.quick_staff(acme, 6, runs_each=2, metered=True, words=2, seconds=0.02)
    firm.give_many(agents, 60)
    with Nursery(processes) as nursery:
        dying = {point: nursery.shift(**{VARIABLE: f"{point}=kill"}) for point in POINTS}
        until(lambda: all(nursery.ended(pid) for pid in dying.values()), 90, what="all have died")
        nursery.shift()
        until(all_ended, 60, what="all ended", look=0.2)
    figures.update(firm.check_all_done_once(), points=len(POINTS), runs_lost=lost())
    check_the_books()


@pytest.mark.faults_long
@pytest.mark.fault("T3", "kill -9 fifty times at each named point")
@pytest.mark.timeout(900)
def test_fifty_deaths_at_each_point(processes: Processes, acme, figures):
    repeats = 50
    agents = firm.quick_staff(acme, 20, runs_each=2, metered=True, words=2, seconds=0.02)
    deaths = 0
    with Nursery(processes) as nursery:
        for point in POINTS:
            for _ in range(0, repeats, 10):
                firm.give_many(agents, 100)
                dying = [nursery.shift(**{VARIABLE: f"{point}=kill@{n + 1}"}) for n in range(10)]
                helper = None
                began = time.monotonic()
                while not all(nursery.ended(pid) for pid in dying):
                    time.sleep(0.1)
                    if firm.open_count() < 20:
                        firm.give_many(agents, 40)
                    assert time.monotonic() - began < 90, (point, helper)
                deaths += len(dying)
        nursery.shift()
        nursery.shift()
        until(all_ended, 120, what="all ended", look=0.5)
    figures.update(firm.check_all_done_once(), deaths=deaths, runs_lost=lost())
    check_the_books()


def lost() -> int:
    return HeartbeatRun.objects.filter(status="lost").count()


def check_the_books() -> None:
    """Each accepted run was paid for once; a lost one at most once, and keeps nothing aside for
    longer than somebody can know better."""
    paid = CostEvent.objects.values_list("run_id", flat=True)
    assert len(paid) == len(set(paid))
    succeeded = set(HeartbeatRun.objects.filter(status="succeeded").values_list("id", flat=True))
    assert succeeded <= set(paid)
    assert set(CostEvent.objects.values_list("cost_micros", flat=True)) == {COST_MICROS}
    assert not Reservation.objects.filter(run_id__in=succeeded, state="held").exists()


@pytest.mark.fault("T4", "the event loop stands still for longer than the lease")
def test_a_loop_that_stands_still_is_ended_before_its_lease_can_be_anothers(
    processes: Processes, acme, figures, tmp_path: Path
):
    firm.give_many(firm.quick_staff(acme, 1, words=2), 1)
    stuck = processes.shift(**{VARIABLE: "streaming=sleep:14"})
    until(lambda: HeartbeatRun.objects.filter(status="running").exists(), 30, what="a run")
    assert stuck.wait(30) == 75
    left = Worker.objects.get().lease_expires_at.timestamp() - time.time()
    figures["seconds before the lease's end"] = round(left, 2)
    assert left > 0
    processes.shift()
    until(all_ended, 40, what="all ended")
    figures.update(firm.check_all_done_once())
    assert os.path.exists(tmp_path)
