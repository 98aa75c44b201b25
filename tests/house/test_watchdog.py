"""A cluster that is alive but does not work is told from one that does."""

from datetime import timedelta

import pytest
from django.utils import timezone
from django_q.models import OrmQ

from agents.models import Beacon, Worker
from companies.ids import new_id
from paperclip import watchdog
from tests.house.instance import database_address

LONG = watchdog.SILENCE_SECONDS + 1


@pytest.fixture(autouse=True)
def _own_address(settings: pytest.MonkeyPatch, transactional_db: None) -> None:
    settings.DIRECT_DSN = database_address()


def shift(instance: str, *, silent_for: float) -> Worker:
    beat_at = timezone.now() - timedelta(seconds=silent_for)
    return Worker.objects.create(
        id=new_id(),
        instance=instance,
        pid=1,
        started_at=beat_at,
        beat_at=beat_at,
        lease_expires_at=beat_at,
    )


def test_a_cluster_whose_beacon_is_fresh_is_well() -> None:
    Beacon.objects.create(name="default", beat_at=timezone.now())

    assert watchdog.default_cluster_ails(LONG) is None


def test_a_cluster_whose_beacon_is_old_ails() -> None:
    Beacon.objects.create(name="default", beat_at=timezone.now() - timedelta(seconds=LONG))

    assert "no task" in str(watchdog.default_cluster_ails(LONG))


def test_a_cluster_that_has_just_started_is_given_time() -> None:
    assert watchdog.default_cluster_ails(watchdog.SILENCE_SECONDS - 1) is None


def test_shifts_of_another_instance_do_not_count() -> None:
    shift("elsewhere", silent_for=0)
    shift("here", silent_for=LONG)

    assert "no shift" in str(watchdog.dispatch_cluster_ails(LONG, "here"))
    assert watchdog.dispatch_cluster_ails(LONG, "elsewhere") is None


def test_nobody_ails_while_the_database_is_away(
    settings: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings.DIRECT_DSN = "host=/nowhere connect_timeout=1"

    assert watchdog.default_cluster_ails(LONG) is None
    assert "cannot ask" in caplog.text


def test_draining_reaches_the_shifts_of_one_instance() -> None:
    here, elsewhere = shift("here", silent_for=0), shift("elsewhere", silent_for=0)

    watchdog.drain("here")

    here.refresh_from_db()
    elsewhere.refresh_from_db()
    assert here.draining
    assert not elsewhere.draining


def test_it_rings_for_a_shift_whose_lease_has_run_out(settings: pytest.MonkeyPatch) -> None:
    settings.SHIFTS = 2
    alive = shift("here", silent_for=-10)
    gone = shift("here", silent_for=30)

    assert watchdog.ring_for_missing_shifts("here")
    assert OrmQ.objects.filter(key="dispatch").count() == 2
    assert watchdog.ring_for_missing_shifts("here")
    assert OrmQ.objects.filter(key="dispatch").count() == 2, "one bell a worker is enough"

    Worker.objects.filter(id=gone.id).update(lease_expires_at=alive.lease_expires_at)
    OrmQ.objects.all().delete()
    assert not watchdog.ring_for_missing_shifts("here")
    assert not OrmQ.objects.exists()
