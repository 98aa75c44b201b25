"""Rows of output: storable whatever comes, fenced, readable by sequence."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import pytest

from agents import output
from agents.models import HeartbeatRun, RunEvent
from tests import factories

AT = datetime(2026, 11, 30, tzinfo=UTC)


def row(run: HeartbeatRun, seq: int, text: str = "x", **fields) -> output.Row:
    return output.Row(
        **{
            "run_id": run.pk,
            "epoch": run.epoch,
            "seq": seq,
            "kind": "text",
            "text": text,
            "data": None,
            "at": AT,
            **fields,
        }
    )


@pytest.mark.parametrize(
    ("raw", "kept"),
    [
        ("plain é漢🙂", "plain é漢🙂"),
        ("a\x00b", "a�b"),
        ("\ud83d alone", "� alone"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
    ],
)
def test_text_is_made_storable(raw, kept):
    assert output.clean(raw) == kept


def test_a_long_text_is_cut_into_pieces_that_fit():
    pieces = output.pieces("🙂" * 100_000)
    assert "".join(pieces) == "🙂" * 100_000
    assert max(map(len, pieces)) <= output.PIECE_CHARS


def test_any_data_becomes_json_that_the_database_takes():
    deep: list = []
    for _ in range(100):
        deep = [deep]
    text = output.to_json({"a\x00": ["\ud800", float("nan"), 2**80, deep, {1: uuid.UUID(int=1)}]})
    assert "\\u0000" not in text
    assert "1208925819614629174706176" in text
    assert "NaN" not in text


@pytest.mark.django_db
def test_rows_of_many_runs_are_written_at_once(ada, bo):
    first, second = factories.running(ada), factories.running(bo)
    owners = output.write([row(first, 2, "a\n'%s"), row(second, 2, "b"), row(first, 3, "c")])
    assert owners == {first.pk: first.company_id, second.pk: second.company_id}
    assert [e.text for e in output.read(first)] == ["a\n'%s", "c"]
    assert [e.text for e in output.read(second)] == ["b"]


@pytest.mark.django_db
def test_rows_of_a_run_that_changed_hands_are_discarded(ada, bo):
    mine, lost = factories.running(ada), factories.running(bo)
    rows = [row(mine, 2), row(lost, 2)]
    HeartbeatRun.objects.filter(pk=lost.pk).update(epoch=2)
    assert list(output.write(rows)) == [mine.pk]
    assert not RunEvent.objects.filter(run_id=lost.pk).exists()


@pytest.mark.django_db
def test_writing_the_same_rows_twice_is_writing_them_once(ada):
    run = factories.running(ada)
    rows = [row(run, 2), row(run, 3)]
    assert output.write(rows) == output.write(rows)
    assert RunEvent.objects.filter(run_id=run.pk).count() == 2


@pytest.mark.django_db
def test_a_page_of_output_begins_behind_the_last_seen(ada):
    run = factories.running(ada)
    output.write([row(run, seq, f"{seq} ") for seq in range(1, 11)])
    assert [e.seq for e in output.read(run, after_seq=7)] == [8, 9, 10]
    assert [e.seq for e in output.read(run, after_seq=0, limit=2)] == [1, 2]
    assert [e.seq for e in output.tail(run, limit=2)] == [9, 10]


@pytest.mark.django_db
def test_a_log_is_read_in_parts_that_join_without_a_gap(ada):
    run = factories.running(ada)
    output.write([row(run, seq, f"line {seq} é漢🙂\n") for seq in range(1, 700)])
    whole, parts, at, ends = "", 0, 0, False
    while not ends:
        text, at, ends = output.log(run, offset=at, limit_bytes=1000)
        whole, parts = whole + text, parts + 1
    assert whole == "".join(f"line {seq} é漢🙂\n" for seq in range(1, 700))
    assert parts > 10
