"""The parser gives the same events however the network cuts the bytes."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.adapters import sse

RECORDINGS = sorted((Path(__file__).parent / "recordings").glob("*.txt"))


def parse(data: bytes, size: int | None = None) -> list[sse.Event]:
    parser = sse.Parser()
    step = size or max(1, len(data))
    events = []
    for begin in range(0, len(data), step):
        events.extend(parser.feed(data[begin : begin + step]))
    return events + parser.close()


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_recording_reads_the_same_for_every_split_size(path: Path) -> None:
    data = path.read_bytes()
    whole = parse(data)
    assert len(whole) > 5
    for size in range(1, 120):
        assert parse(data, size) == whole


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
@pytest.mark.parametrize("end", [b"\r\n", b"\r"], ids=["crlf", "cr"])
def test_line_ends_make_no_difference(path: Path, end: bytes) -> None:
    data = path.read_bytes()
    for size in (1, 2, 3, 7, 64, 10_000):
        assert parse(data.replace(b"\n", end), size) == parse(data)


@settings(max_examples=200, deadline=None)
@given(
    texts=st.lists(st.text(min_size=1).map(lambda t: t.replace("\r", "").replace("\n", "") or "x")),
    cuts=st.lists(st.integers(1, 9), min_size=1),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_any_text_survives_any_cuts(texts: list[str], cuts: list[int], end: str) -> None:
    data = "".join(f"data: {text}{end}{end}" for text in texts).encode()
    parser = sse.Parser()
    events = []
    position = number = 0
    while position < len(data):
        step = cuts[number % len(cuts)]
        events.extend(parser.feed(data[position : position + step]))
        position, number = position + step, number + 1
    assert [event.data for event in events + parser.close()] == texts


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"data: a\ndata: b\n\n", ["a\nb"], id="several data lines are one event"),
        pytest.param(b": hi\n\ndata: a\n\n", ["a"], id="comments are nothing"),
        pytest.param(b"\xef\xbb\xbfdata: a\n\n", ["a"], id="a byte order mark is skipped"),
        pytest.param("data: a\u2028b\u0085c\x0bd\n\n".encode(), ["a\u2028b\u0085c\x0bd"], id="ls"),
        pytest.param(b"data:a\n\n", ["a"], id="the space is optional"),
        pytest.param(b"data:  a\n\n", [" a"], id="only one space is dropped"),
        pytest.param(b"data\n\n", [""], id="a field without a colon"),
        pytest.param(b"event: x\n\ndata: a\n\n", ["a"], id="an event without data is nothing"),
        pytest.param(b"data: a", ["a"], id="the last blank line may be missing"),
        pytest.param(b"data: \xff\xfe\n\n", ["\ufffd\ufffd"], id="broken UTF-8 is replaced"),
        pytest.param(b"retry: 5\nwhat: no\ndata: a\n\n", ["a"], id="other fields are ignored"),
    ],
)
def test_framing(data: bytes, expected: list[str]) -> None:
    for size in range(1, len(data) + 1):
        assert [event.data for event in parse(data, size)] == expected


def test_the_event_name_belongs_to_one_event() -> None:
    events = parse(b"event: ping\nid: 7\ndata: a\n\ndata: b\n\n")
    assert [(event.name, event.id) for event in events] == [("ping", "7"), ("", "7")]


def test_an_endless_line_is_refused() -> None:
    parser = sse.Parser(max_event_bytes=1000)
    with pytest.raises(sse.TooLarge):
        for _ in range(200):
            parser.feed(b"data: xxxxx")


def test_an_endless_event_of_short_lines_is_refused() -> None:
    parser = sse.Parser(max_event_bytes=1000)
    with pytest.raises(sse.TooLarge):
        for _ in range(300):
            parser.feed(b"data: xxxxx\n")


def test_an_endless_stream_is_refused() -> None:
    parser = sse.Parser(max_total_bytes=1000)
    with pytest.raises(sse.TooLarge):
        for _ in range(200):
            parser.feed(b": nothing\n\n")
