"""What an operator watches: told by any web process, counted over all, bounded, and not public."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from prometheus_client.parser import text_string_to_metric_families

from agents import breaker, meters, runs, workers
from agents.models import Beacon, Counter
from companies.activity import SYSTEM
from paperclip.engine import recover, schedule, tick
from paperclip.engine.opening import open_run
from tests import factories
from tests.watch.conftest import key

pytestmark = pytest.mark.django_db


@pytest.fixture
def committed(django_capture_on_commit_callbacks):
    """Runs what is to be done after the commit, as a real commit would."""
    return lambda: django_capture_on_commit_callbacks(execute=True)


@pytest.fixture(autouse=True)
def _nobody_listens(monkeypatch):
    """A commit that is played has nobody to tell."""
    monkeypatch.setattr("companies.live.Sender._start", lambda self: None)


# --- who may ask -----------------------------------------------------------------------------


def test_the_machine_itself_may_read_it():
    assert Client(REMOTE_ADDR="127.0.0.1").get("/metrics").status_code == 200
    assert Client(REMOTE_ADDR="::1").get("/metrics").status_code == 200
    assert Client(REMOTE_ADDR="::ffff:127.0.0.1").get("/metrics").status_code == 200


@pytest.mark.parametrize("address", ["192.0.2.7", "10.0.0.1", "", "unix", "::ffff:192.0.2.7"])
def test_others_may_not_without_a_token(address):
    response = Client(REMOTE_ADDR=address).get("/metrics")
    assert response.status_code == 401
    assert json.loads(response.content)["code"] == "unauthenticated"


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"])
def test_who_is_behind_a_proxy_on_this_machine_is_not_the_machine(header):
    response = Client(REMOTE_ADDR="127.0.0.1").get("/metrics", headers={header: "192.0.2.7"})
    assert response.status_code == 401


def test_with_a_token_its_bearer_may_from_anywhere_and_nobody_else(settings):
    settings.METRICS_TOKEN = "a token for the test"

    def ask(address: str, value: str | None) -> int:
        headers = {} if value is None else {"Authorization": value}
        return Client(REMOTE_ADDR=address).get("/metrics", headers=headers).status_code

    assert ask("192.0.2.7", "Bearer a token for the test") == 200
    assert ask("127.0.0.1", None) == 401
    for wrong in (
        "Bearer a token",
        "Basic a token for the test",
        "a token for the test",
        "Bearer ",
    ):
        assert ask("127.0.0.1", wrong) == 401


def test_it_is_only_read():
    assert Client().post("/metrics").status_code == 405


def test_it_says_that_the_database_is_away(monkeypatch):
    from django.db import OperationalError

    def away(*_):
        raise OperationalError("away")

    monkeypatch.setattr("paperclip.metrics._ask", away)
    response = Client().get("/metrics")
    assert (response.status_code, response["Retry-After"]) == (503, "2")


# --- what it says ----------------------------------------------------------------------------


def test_it_is_prometheus_text_and_every_name_is_there_before_anything_has_happened():
    response = Client().get("/metrics")
    assert response["Content-Type"].startswith("text/plain; version=")
    families = {one.name for one in text_string_to_metric_families(response.content.decode())}
    for name in meters.NAMES:
        suffix = "_seconds" if name in (meters.WAKE_TO_START, meters.STREAM_LAG) else ""
        assert f"paperclip_{name}{suffix}" in families


def test_the_queue_its_oldest_and_what_runs(scrape, ada, bo, acme, now):
    for agent, age in ((ada, 90), (bo, 30)):
        factories.run(agent, factories.issue(acme), now=now - timedelta(seconds=age))
    factories.run(ada, factories.issue(acme), not_before=now + timedelta(hours=1))
    factories.running(bo, factories.issue(acme))
    seen = scrape()
    assert seen[key("queue_runs", state="due")] == 2
    assert seen[key("queue_runs", state="later")] == 1
    assert seen[key("running_runs")] == 1
    assert 90 <= seen[key("queue_oldest_wait_seconds")] < 150


def test_a_queue_is_counted_no_further_than_its_bound(scrape, ada, acme, monkeypatch):
    monkeypatch.setattr("paperclip.metrics.MOST_COUNTED", 3)
    for issue in factories.issues(acme, 5):
        factories.run(ada, issue)
    assert scrape()[key("queue_runs", state="due")] == 3


def test_runs_are_counted_by_status_and_code(scrape, committed, ada, acme):
    with committed():
        for status, code in (("succeeded", ""), ("failed", "idle"), ("failed", "idle")):
            run = factories.running(ada, factories.issue(acme))
            assert runs.finish(run_id=run.pk, epoch=run.epoch, status=status, code=code)
    seen = scrape()
    assert seen[key("runs_ended_total", status="succeeded", code="")] == 1
    assert seen[key("runs_ended_total", status="failed", code="idle")] == 2


def test_a_write_that_was_refused_is_counted_although_its_transaction_is_undone(scrape, ada):
    run = factories.running(ada)
    assert not runs.finish(run_id=run.pk, epoch=run.epoch + 1, status="succeeded")
    with pytest.raises(runs.Stale):
        runs.mark_acted(run_id=run.pk, epoch=run.epoch + 1)
    seen = scrape()
    assert seen[key("stale_writes_blocked_total", what="finish")] == 1
    assert seen[key("stale_writes_blocked_total", what="acted_at")] == 1


def test_a_run_whose_holder_died_is_a_rescue(scrape, committed, ada, acme):
    factories.running(ada, factories.issue(acme, assignee=ada))
    with committed():
        (lost,) = recover.sweep()
    assert scrape()[key("rescues_total", status=lost.status)] == 1


def test_the_way_from_a_wake_to_its_start_is_a_histogram(scrape, committed, ada, acme, now):
    issue = factories.issue(acme, assignee=ada)
    run = factories.running(ada, issue, now=now, started_at=now + timedelta(seconds=0.2))
    with committed():
        open_run(runs.Claimed(run.pk, run.epoch, acme.pk, ada.pk, issue.pk, now, "demo", 1))
    seen = scrape()
    assert seen[key("wake_to_start_seconds_bucket", le="0.15")] == 0
    assert seen[key("wake_to_start_seconds_bucket", le="0.25")] == 1
    assert seen[key("wake_to_start_seconds_bucket", le="+Inf")] == 1
    assert seen[key("wake_to_start_seconds_count")] == 1
    assert seen[key("wake_to_start_seconds_sum")] == pytest.approx(0.2)


def test_a_run_that_waited_for_its_time_did_not_wait_before_it(scrape, committed, ada, acme, now):
    issue = factories.issue(acme, assignee=ada)
    due = now + timedelta(hours=1)
    run = factories.running(ada, issue, now=now, not_before=due, started_at=due)
    with committed():
        open_run(runs.Claimed(run.pk, run.epoch, acme.pk, ada.pk, issue.pk, now, "demo", 1))
    assert scrape()[key("wake_to_start_seconds_sum")] == 0


def test_wakes_that_were_refused_are_counted_by_reason(scrape, committed, ada, acme, now):
    from companies.activity import Actor

    issue = factories.issue(acme, assignee=ada)
    herself = Actor("agent", ada.pk, ada.name)
    with committed():
        for _ in range(3):
            woken = runs.wake(
                agent=ada, issue=issue, reason="issue_commented", source="automation",
                actor=herself, now=now,
            )  # fmt: skip
            assert woken.refused == "own_change"
    assert scrape()[key("wakes_refused_total", reason="own_change")] == 3


def test_beats_without_work_are_counted_by_reason(scrape, committed, acme, now):
    for name in ("Tim", "Tom"):
        agent = factories.agent(acme, name, heartbeat_enabled=True, next_beat_at=now)
    factories.blocker(factories.issue(acme, assignee=agent), by=factories.issue(acme))
    with committed():
        assert tick.beats(now=now) == 0
    seen = scrape()
    assert seen[key("beats_saved_total", reason="idle")] == 1
    assert seen[key("beats_saved_total", reason="waiting")] == 1


def test_a_breaker_that_opens_is_counted_and_shown_while_it_is_open(scrape, committed, acme, now):
    fine, bad = factories.provider(acme, "Fine"), factories.provider(acme, "Bad")
    with committed():
        breaker.failed(connection_id=bad.pk, code="rate_limited", retry_after=60, now=now)
    seen = scrape()
    assert seen[key("connections", state="closed")] == 1
    assert seen[key("connections", state="open")] == 1
    assert seen[key("breaker_opened_total", code="rate_limited")] == 1
    labels = {"company": str(acme.pk), "connection": str(bad.pk), "state": "open"}
    assert seen[key("connection_in_trouble", code="rate_limited", **labels)] == 1
    assert not any(str(fine.pk) in str(sample) for sample in seen)


def test_workers_and_canaries(scrape, now):
    worker_id = workers.register(instance="here", slot=1, pid=7, capacity=250)
    workers.beat(worker_id=worker_id, running=42)
    Beacon.objects.create(name="default", beat_at=now - timedelta(seconds=30))
    seen = scrape()
    labels = {"instance": "here", "slot": "1", "worker": str(worker_id)}
    assert seen[key("worker_running_runs", **labels)] == 42
    assert seen[key("worker_capacity_runs", **labels)] == 250
    assert seen[key("worker_beat_age_seconds", **labels)] < 60
    assert seen[key("workers", state="working")] == 1
    assert 30 <= seen[key("canary_age_seconds", cluster="default")] < 90


def test_the_canary_of_an_instance_that_is_gone_grows_no_older(scrape, now):
    """A restart gives an instance a new name. One that hangs still has processes that tell."""
    old, hung = "oak-0b1c2d3e", f"{'x' * 60}-4f5a6b7c"
    for instance in (old, hung, "oak-99aa88bb"):
        Beacon.objects.create(name=schedule.beacon(instance), beat_at=now - timedelta(minutes=20))
    Beacon.objects.filter(name=schedule.beacon("oak-99aa88bb")).update(beat_at=now)
    meters.report(instance=hung, kind="web", source=dict)

    ages = {
        dict(labels)["cluster"]: age
        for (name, labels), age in scrape().items()
        if name == "paperclip_canary_age_seconds"
    }
    assert ages.keys() == {schedule.beacon(hung), schedule.beacon("oak-99aa88bb")}
    assert ages[schedule.beacon(hung)] >= 1_200


def test_without_reports_every_canary_is_told(scrape, now):
    Beacon.objects.create(name=schedule.beacon("oak"), beat_at=now - timedelta(minutes=20))
    assert scrape()[key("canary_age_seconds", cluster=schedule.beacon("oak"))] >= 1_200


def test_connections_to_the_database_and_what_each_process_says_of_itself(scrape):
    meters.report(instance="here", kind="web", source=lambda: {"streams_open": 12, "secret": 1})
    seen = scrape()
    assert sum(v for (name, _), v in seen.items() if name == "paperclip_database_connections") >= 1
    assert seen[key("database_connections_limit")] > 1
    (pid,) = {dict(labels)["pid"] for (name, labels) in seen if name.endswith("streams_open")}
    labels = {"instance": "here", "kind": "web", "pid": pid}
    assert seen[key("process_streams_open", **labels)] == 12
    assert seen[key("process_resident_bytes", **labels)] > 10_000_000
    assert not any("secret" in name for name, _ in seen)


def test_a_scrape_asks_the_same_few_questions_however_much_there_is(ada, acme, settings):
    def questions() -> int:
        with CaptureQueriesContext(
            connection,
        ) as asked:
            assert Client().get("/metrics").status_code == 200
        return len(asked)

    before = questions()
    for issue in factories.issues(acme, 20):
        factories.run(ada, issue)
        factories.provider(acme, f"P{issue.number}", breaker="open", open_code="idle")
        workers.register(instance=f"i{issue.number}", slot=0, pid=1, capacity=1)
    assert questions() == before <= 12


# --- how it is counted -----------------------------------------------------------------------


def test_counts_survive_their_process_and_add_up(monkeypatch):
    for _ in range(2):
        monkeypatch.setattr(meters, "_the_meter", None)  # another process
        meters.count(meters.LEASE_LOSSES, times=2)
        meters.flush()
    assert Counter.objects.get(name=meters.LEASE_LOSSES).value == 4


def test_nothing_is_written_when_nothing_has_happened(django_assert_num_queries):
    with django_assert_num_queries(0):
        meters.flush()


def test_what_cannot_be_written_is_kept_for_the_next_time(monkeypatch):
    meters.count(meters.LEASE_LOSSES)
    with monkeypatch.context() as patch:
        patch.setattr(
            meters, "_COUNT", "SELECT 1 / (cardinality(%s::text[]) - 1), %s::text, %s::text"
        )
        with pytest.raises(Exception, match="zero"):
            meters.flush()
    meters.flush()
    assert Counter.objects.get(name=meters.LEASE_LOSSES).value == 1


def test_while_the_database_is_away_memory_stays_bounded(monkeypatch):
    monkeypatch.setattr(meters, "MOST_KEYS", 5)
    for n in range(50):
        meters.count(meters.WAKES_REFUSED, f"reason {n}")
    meters.count(meters.WAKES_REFUSED, "reason 0")
    meters.flush()
    assert Counter.objects.count() == 5
    assert Counter.objects.get(label="reason 0").value == 2


def test_an_agent_that_is_gone_meanwhile_is_counted_for_nobody(ada):
    meters.count(meters.BEATS_SAVED, "idle", agent_id=ada.pk)
    ada.delete()
    meters.flush()
    assert Counter.objects.get(name=meters.BEATS_SAVED).value == 1


def test_what_is_undone_was_not_counted(ada, acme, now, django_capture_on_commit_callbacks):
    from django.db import transaction

    with django_capture_on_commit_callbacks(execute=True):
        with pytest.raises(RuntimeError), transaction.atomic():
            runs.wake(
                agent=ada, reason="x", source="automation", actor=SYSTEM, now=now,
            )  # fmt: skip
            meters.count_at_commit(meters.RESCUES, "lost")
            raise RuntimeError
    meters.flush()
    assert not Counter.objects.exists()
