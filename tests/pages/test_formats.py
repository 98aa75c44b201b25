"""How values look: money, time, terminal colours, Markdown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.utils.safestring import mark_safe

from agents.ansi import Painter, plain
from companies import charts, format, markdown
from companies.models import User

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (None, "unpriced"),
        (0, "$0.00"),
        (31_500_000, "$31.50"),
        (1_234_567_890_000, "$1,234,567.89"),
        (100_000, "$0.10"),
        (4_213, "$0.0042"),
        (97_000, "$0.097"),
        (12, "$0.000012"),
        (-2_500_000, "-$2.50"),
    ],
)
def test_money_keeps_the_digits_that_matter(micros: int | None, text: str) -> None:
    assert format.money(micros) == text


@pytest.mark.parametrize(
    ("micros", "text"),
    [(1_234_567, "$1.234567"), (3_000_000, "$3.00"), (123_450, "$0.12345"), (0, "$0.00")],
)
def test_a_price_that_somebody_set_is_shown_to_the_last_digit(micros: int, text: str) -> None:
    assert format.price(micros) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 runs"), (1, "1 run"), (2, "2 runs"), (1_200, "1,200 runs")]
)
def test_one_is_not_many(number: int, text: str) -> None:
    assert format.count(number, "run") == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0.42, "0.4s"),
        (59, "59s"),
        (187, "3m 07s"),
        (7_800, "2h 10m"),
        (90_000, "1d 1h"),
        (-5, "0s"),
    ],
)
def test_a_span_of_time_has_at_most_two_units(seconds: float | None, text: str) -> None:
    assert format.duration(seconds) == text


@pytest.mark.parametrize(
    ("ago", "text"),
    [(3, "now"), (40, "40s"), (240, "4m"), (7_200, "2h"), (200_000, "2d"), (-300, "in 5m")],
)
def test_an_age_has_one_unit(ago: int, text: str) -> None:
    assert format.age(NOW - timedelta(seconds=ago), NOW) == text


def test_a_moment_tells_utc_on_hover() -> None:
    html = format.ago(NOW - timedelta(hours=1), NOW)
    assert 'title="2026-03-01 11:00:00 UTC"' in html
    assert ">1h<" in html


@pytest.mark.parametrize(
    ("part", "whole", "percent"),
    [
        (0, 25, 0),
        (460_000, 25_000_000, 2),
        (4, 1_000, 0),
        (5, 1_000, 1),
        (995, 1_000, 99),
        (999_999, 1_000_000, 99),
        (1_000, 1_000, 100),
        (1_005, 1_000, 101),
        (-5, 100, 0),
        (0, 0, 100),
    ],
)
def test_a_share_rounds_half_up_and_is_whole_only_when_reached(
    part: int, whole: int, percent: int
) -> None:
    assert format.share(part, whole) == percent


@pytest.mark.parametrize(
    ("name", "text"), [("Ada", "Ad"), ("Bo Lindqvist", "BL"), ("o@example.org", "oe"), ("", "?")]
)
def test_initials_are_two_letters(name: str, text: str) -> None:
    assert format.initials(name) == text


def test_a_person_has_one_face_whether_named_or_given() -> None:
    olga = User(email="operator@localhost", name="Olga Petrova")
    assert format.avatar(olga, "user") == format.avatar("Olga Petrova", "user")
    assert ">OP<" in format.avatar(olga, "user")
    olga.name = ""
    assert format.avatar(olga, "user") == format.avatar("operator@localhost", "user")


def test_colours_last_over_pieces_until_they_are_reset() -> None:
    painter = Painter()
    assert painter.html("\x1b[1;31mred") == '<span class="a-b a-31">red</span>'
    assert painter.html(" still") == '<span class="a-b a-31"> still</span>'
    assert painter.html("\x1b[0m plain") == " plain"


def test_what_only_a_terminal_understands_is_dropped() -> None:
    text = "\x1b]0;title\x07\x1b[2Ka\x1b[10;5Hb\x1b]8;;http://x\x1b\\c\x00\x08\x7f"
    assert Painter().html(text) == "abc"
    assert plain(text) == "abc"


def test_many_colours_are_read_without_stumbling() -> None:
    painter = Painter()
    assert painter.html("\x1b[38;5;9mx\x1b[39m") == '<span class="a-91">x</span>'
    assert painter.html("\x1b[38;2;1;2;3my\x1b[m") == "y"
    assert painter.html("\x1b[999999999999999999mz\x1b[38mw\x1b[;;m") == "zw"


def test_output_is_escaped_inside_and_outside_of_colours() -> None:
    html = Painter().html("<b>\x1b[32m<i>&\"'")
    assert "<b>" not in html
    assert "<i>" not in html


def test_markdown_shows_what_people_write() -> None:
    html = markdown.render("# A\n\n- **b**\n- `c`\n\n| x |\n|---|\n| 1 |\n\n~~d~~")
    for part in ("<h1>A</h1>", "<strong>b</strong>", "<code>c</code>", "<td>1</td>", "<s>d</s>"):
        assert part in html


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "[x](javascript:alert(1))",
        "[x](data:text/html;base64,PHNjcmlwdD4=)",
        "![x](http://tracker.example/pixel.png)",
        "<a href=x onclick=alert(1)>y</a>",
        "<style>*{display:none}</style>",
        '<svg onload="alert(1)">',
    ],
)
def test_markdown_lets_nothing_through_that_acts(text: str) -> None:
    html = markdown.render(text)
    for part in ("<script", 'javascript:alert(1)"', "<img", "<style", "<svg", 'onclick="'):
        assert part not in html
    assert 'href="data:' not in html


def test_links_leave_without_a_trace() -> None:
    assert 'rel="noopener noreferrer nofollow"' in markdown.render("[x](https://example.com)")


def test_a_ring_stops_at_full_and_says_so() -> None:
    assert 'data-tone="bad"' in charts.ring(3.0, "over")
    assert 'data-tone="warn"' in charts.ring(0.85, "near")
    assert charts.ring(0, "nothing").count("<circle") == 1


def test_charts_survive_empty_months() -> None:
    assert "<svg" in charts.burn_up([], days=31, limit=None, forecast=None)
    assert "<svg" in charts.throughput([])
    assert "<svg" in charts.sparkline([], "nothing")


def test_a_name_that_was_safe_once_is_no_pass_for_the_same_letters() -> None:
    assert "#<b>" in format.icon(mark_safe("<b>"))
    assert "#&lt;b&gt;" in format.icon("<b>")


def test_rows_escape_all_that_is_not_safe() -> None:
    written = format.html("<i>{}{}{}</i>", "<a>&\"'", mark_safe("<b>"), 5)
    assert written == "<i>&lt;a&gt;&amp;&quot;&#x27;<b>5</i>"


def test_options_are_escaped_and_one_is_chosen() -> None:
    written = format.options(["in_review", ("b", '"<B>"')], "b")
    assert written == (
        '<option value="in_review">In review</option>'
        '<option value="b" selected>&quot;&lt;B&gt;&quot;</option>'
    )
