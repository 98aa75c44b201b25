"""What a run says on its way to the rows: merged, numbered, without secrets, bounded."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from agents.adapters.base import Step, Text
from paperclip.engine import journal as journals
from paperclip.engine.journal import Journal, Redactor

SECRET = "sk-abcdefghijkl"


def journal(limit: int = 1_000_000) -> Journal:
    return Journal(run_id=uuid.uuid4(), epoch=1, limit_chars=limit)


def said(*events, limit: int = 1_000_000, secrets=()) -> list:
    async def speak() -> list:
        one = journal(limit)
        one.hide(secrets)
        for event in events:
            await one.say(event)
        waiting = asyncio.ensure_future(one.settle())
        await asyncio.sleep(0)
        rows = []
        while batch := one.take():
            rows += batch
            one.written(len(batch))
        await asyncio.wait_for(waiting, 1)
        return rows

    return asyncio.run(speak())


def test_parts_of_one_channel_are_one_row():
    rows = said(Text("a"), Text("b"), Text("c", "stdout"), Text("d", "stdout"), Text("e"))
    assert [(r.kind, r.text) for r in rows] == [("text", "ab"), ("stdout", "cd"), ("text", "e")]


def test_numbers_go_up_by_one_from_two():
    rows = said(Text("x" * 100_000), Step("1", "look", "start"), Text("y"))
    assert [r.seq for r in rows] == list(range(2, 2 + len(rows)))
    assert len(rows) == 6


@pytest.mark.parametrize("cut", range(1, len(SECRET)))
def test_a_secret_is_hidden_wherever_it_is_cut(cut):
    rows = said(Text("it is " + SECRET[:cut]), Text(SECRET[cut:] + "."), secrets=[SECRET])
    assert "".join(r.text for r in rows) == "it is [redacted]."


def test_a_secret_is_hidden_across_writes():
    """The first part has been taken by the writer before the second one comes."""
    redactor = Redactor([SECRET])
    shown = redactor.feed("answer", "it is sk-abc") + redactor.feed("answer", "defghijkl.")
    assert shown == "it is [redacted]."


def test_what_only_looked_like_the_start_of_a_secret_comes_out_in_the_end():
    assert "".join(r.text for r in said(Text("ask-"), secrets=[SECRET])) == "ask-"


def test_channels_keep_their_own_beginnings():
    rows = said(
        Text(SECRET[:5], "stdout"),
        Text("noise", "stderr"),
        Text(SECRET[5:], "stdout"),
        secrets=[SECRET],
    )
    assert SECRET not in "".join(r.text for r in rows if r.kind == "stdout")
    assert "[redacted]" in "".join(r.text for r in rows if r.kind == "stdout")


def test_steps_are_searched_in_depth():
    rows = said(
        Step("1", "call", "start", input={"a": [{"b": f"x{SECRET}"}]}),
        Step("1", "call", "end", output=SECRET),
        secrets=[SECRET],
    )
    assert SECRET not in "".join(f"{r.text}{r.data}" for r in rows)


@pytest.mark.parametrize("secrets", [[], ["hunter22"]])
def test_what_is_nested_too_deep_is_cut_there(secrets):
    deep: object = "bottom"
    for _ in range(5_000):
        deep = [deep]
    cut = Redactor(secrets).data({"a": deep})
    levels = 0
    while isinstance(cut, dict | list):
        cut = cut["a"] if isinstance(cut, dict) else cut[0]
        levels += 1
    assert (levels, cut) == (journals.MAX_DEPTH, journals.TOO_DEEP)


def test_a_value_too_short_to_be_a_secret_is_left():
    assert said(Text("a banana"), secrets=["an"])[0].text == "a banana"


def test_beyond_its_limit_a_run_is_cut_with_one_word_about_it():
    rows = said(Text("a" * 30), Text("b" * 30), Text("c"), Text("d"), limit=40)
    text = "".join(r.text for r in rows if r.kind == "text")
    assert text == "a" * 30 + "b" * 10
    assert len([r for r in rows if r.kind == "system"]) == 1


def test_huge_step_input_is_left_out_and_said_so():
    (row,) = said(Step("1", "call", "start", input={"a": "x" * 1_000_000}))
    assert len(row.data) < 1_000
    assert '"cut":true' in row.data


def test_who_talks_faster_than_is_written_waits():
    async def story() -> None:
        one = journal(10_000_000)
        await one.say(Text("x" * (journals.PENDING_CHARS - 10)))
        second = asyncio.ensure_future(one.say(Text("y" * 20)))
        await asyncio.sleep(0.01)
        assert not second.done()
        while rows := one.take():
            one.written(len(rows))
        await asyncio.wait_for(second, 1)

    asyncio.run(story())


def test_a_refused_journal_lets_everybody_go():
    async def story() -> None:
        one = journal()
        await one.say(Text("x"))
        waiting = asyncio.ensure_future(one.settle())
        await asyncio.sleep(0)
        one.refuse()
        await asyncio.wait_for(waiting, 1)
        await one.say(Text("more"))
        assert one.take() == []

    asyncio.run(story())
