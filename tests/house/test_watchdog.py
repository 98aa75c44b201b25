"""A cluster that is alive but does not work is told from one that does."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db.models import F
from django.utils import timezone
from django_q.brokers import Broker, get_broker
from django_q.models import OrmQ
from django_q.tasks import async_task

from agents.models import Beacon, Worker
from companies.ids import new_id
from paperclip import watchdog
from paperclip.engine import schedule
from tests.house.instance import database_address

LONG = watchdog.SILENCE_SECONDS + 1


@pytest.fixture(autouse=True)
def _own_address(
    settings: pytest.MonkeyPatch, monkeypatch: pytest.MonkeyPatch, transactional_db: None
) -> None:
    settings.DIRECT_DSN = database_address()
    monkeypatch.setattr(watchdog, "_short_handed", watchdog._Since())
    monkeypatch.setattr(watchdog, "_canary_rung_at", float("-inf"))


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


def canary(instance: str = "here", *, silent_for: float = 0) -> None:
    Beacon.objects.create(
        name=schedule.beacon(instance), beat_at=timezone.now() - timedelta(seconds=silent_for)
    )


def test_a_cluster_whose_canary_is_fresh_is_well() -> None:
    canary()

    assert watchdog.default_cluster_ails(LONG, "here") is None
    assert not OrmQ.objects.exists(), "nobody has to ask for another one"


def test_a_cluster_whose_canary_is_old_ails() -> None:
    canary(silent_for=LONG)

    assert "no task" in str(watchdog.default_cluster_ails(LONG, "here"))


def test_another_instances_canary_proves_nothing() -> None:
    canary("elsewhere")

    assert "no task" in str(watchdog.default_cluster_ails(LONG, "here"))


def test_it_sends_more_canaries_while_its_own_does_not_come_back() -> None:
    """With two instances on one queue the other one may have taken the last one."""
    canary(silent_for=LONG / 2)

    assert watchdog.default_cluster_ails(LONG, "here") is None
    assert watchdog.default_cluster_ails(LONG, "here") is None
    (rung,) = OrmQ.objects.all()
    assert (rung.key, rung.func()) == ("default", "paperclip.engine.tasks.canary")


def test_a_cluster_that_has_just_started_is_given_time() -> None:
    assert watchdog.default_cluster_ails(watchdog.SILENCE_SECONDS - 1, "here") is None


@pytest.mark.parametrize(
    ("taken", "ails"), [(LONG + 10, True), (30, False), (2 * LONG + 30, False)]
)
def test_a_cluster_that_acknowledges_nothing_ails(
    settings: pytest.MonkeyPatch, taken: float, ails: bool
) -> None:
    """Not one that has just taken a task; nor one that was started after it was taken."""
    canary()
    locked = timezone.now() - timedelta(seconds=taken) + timedelta(seconds=600)
    OrmQ.objects.create(key="default", payload="", lock=locked)

    complaint = watchdog.default_cluster_ails(2 * LONG, "here")
    assert (complaint is not None) is ails
    assert not ails or "acknowledges" in str(complaint)


def _just_made(broker: Broker) -> None:
    """The row of a task that no worker has taken yet."""
    async_task("paperclip.engine.tasks.canary", cluster="default", broker=broker)


def _made_ahead(broker: Broker) -> None:
    """The same from a host whose clock is some seconds ahead of the database's."""
    _just_made(broker)
    OrmQ.objects.update(lock=F("lock") + timedelta(seconds=10))


def _waiting(broker: Broker) -> None:
    """A task that nobody has taken for minutes; its canary tells of that."""
    _just_made(broker)
    OrmQ.objects.update(lock=F("lock") - timedelta(seconds=LONG + 10))


def _just_taken(broker: Broker) -> None:
    _just_made(broker)
    assert broker.dequeue()


def _taken_long_ago(broker: Broker) -> None:
    _just_taken(broker)
    OrmQ.objects.update(lock=F("lock") - timedelta(seconds=LONG + 10))


def _acknowledged(broker: Broker) -> None:
    _just_made(broker)
    ((row, _payload),) = broker.dequeue()
    broker.acknowledge(row)


@pytest.mark.parametrize("alive", [10, 700, 7000])
@pytest.mark.parametrize(
    ("state", "stuck"),
    [
        (_just_made, False),
        (_made_ahead, False),
        (_waiting, False),
        (_just_taken, False),
        (_taken_long_ago, True),
        (_acknowledged, False),
    ],
)
def test_only_a_task_that_was_taken_long_ago_is_stuck_however_long_a_cluster_has_run(
    state: Callable[[Broker], None], stuck: bool, alive: float
) -> None:
    """Rows of the broker's own making. Whoever has run for ten seconds has not taken it."""
    canary()
    state(get_broker("default"))

    complaint = watchdog.default_cluster_ails(alive, "here")
    assert (complaint is not None) is (stuck and alive > LONG), complaint


def test_shifts_of_another_instance_do_not_count() -> None:
    shift("elsewhere", silent_for=0)
    shift("here", silent_for=LONG)

    assert "no shift" in str(watchdog.dispatch_cluster_ails(LONG, "here"))
    assert watchdog.dispatch_cluster_ails(LONG, "elsewhere") is None


@pytest.mark.parametrize(("running", "ails"), [(0, True), (3, False)])
def test_shifts_that_stay_missing_ail_when_no_run_would_be_cut(
    settings: pytest.MonkeyPatch, monkeypatch: pytest.MonkeyPatch, running: int, ails: bool
) -> None:
    """A worker that died while idle has locked the queue: nobody answers the bells any more."""
    settings.SHIFTS = 2
    alive = shift("here", silent_for=-60)
    Worker.objects.filter(pk=alive.pk).update(running=running)
    clock = [100.0]
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: clock[0])

    assert watchdog.dispatch_cluster_ails(LONG, "here") is None, "it has only just been seen"
    clock[0] += LONG
    complaint = watchdog.dispatch_cluster_ails(2 * LONG, "here")
    assert (complaint is not None) is ails
    shift("here", silent_for=-60)
    assert watchdog.dispatch_cluster_ails(2 * LONG, "here") is None, "it has come back"


def test_nobody_ails_while_the_database_is_away(
    settings: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings.DIRECT_DSN = "host=/nowhere connect_timeout=1"

    assert watchdog.default_cluster_ails(LONG, "here") is None
    assert watchdog.dispatch_cluster_ails(LONG, "here") is None
    assert "cannot ask" in caplog.text


def test_draining_reaches_the_shifts_of_one_instance() -> None:
    here, elsewhere = shift("here", silent_for=0), shift("elsewhere", silent_for=0)

    watchdog.drain("here")

    here.refresh_from_db()
    elsewhere.refresh_from_db()
    assert here.draining
    assert not elsewhere.draining


def test_bells_wait_before_anybody_is_missing_and_never_pile_up(
    settings: pytest.MonkeyPatch,
) -> None:
    """A shift that was killed a moment ago still has its lease; its successor needs a bell now."""
    settings.SHIFTS = 2
    shift("here", silent_for=-10)
    shift("here", silent_for=-10)

    assert watchdog.dispatch_cluster_ails(10, "here") is None
    assert OrmQ.objects.filter(key="dispatch").count() == 2
    watchdog.dispatch_cluster_ails(13, "here")
    assert OrmQ.objects.filter(key="dispatch").count() == 2, "one bell a worker is enough"


def test_a_cluster_that_starts_finds_the_bells_of_its_start(settings: pytest.MonkeyPatch) -> None:
    watchdog.dispatch_cluster_ails(1, "here")
    assert not OrmQ.objects.exists()
