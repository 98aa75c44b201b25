"""How values look on every page: money, durations, moments, names, icons. Text and safe HTML only.

Functions, not templates: a list of hundreds of rows is written with them (the template engine
costs about 15 µs a tag), and `templatetags/ui.py` hands the same ones to templates.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache, lru_cache
from html import escape

from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

# Glyphs of our own in the sprite, by the family of the status they show.
_GLYPHS = {
    "issue": "is",
    "run": "run",
    "priority": "pr",
    "agent": "ag",
}
_SHAPES = {
    "run-unknown": "run-lost",
    "run-scheduled_retry": "run-queued",
    "ag-running": "run-running",
    "ag-error": "run-failed",
    "ag-pending_approval": "run-queued",
    "ag-terminated": "is-cancelled",
    "ag-active": "ag-idle",
    "ag-waiting": "run-queued",
}
LABELS = {
    "in_progress": "In progress",
    "in_review": "In review",
    "todo": "To do",
    "timed_out": "Timed out",
    "pending_approval": "Pending approval",
    "unknown": "Outcome unknown",
}


def html(form: str, *parts: object) -> SafeString:
    """`form` with `parts` in its {} places, escaped unless they are safe already.

    What `format_html` does for strings, at a quarter of its price: for rows, of which a page has
    hundreds of pieces.
    """
    # mark_safe: the form is a literal of the caller's, every other part is escaped.
    return mark_safe(  # noqa: S308
        form.format(*[p if type(p) is SafeString else escape(str(p)) for p in parts])
    )


def label(value: str) -> str:
    """A status or kind as people read it: `in_review` is "In review"."""
    return LABELS.get(value) or value.replace("_", " ").capitalize()


def money(micros: int | None, *, digits: int | None = None) -> str:
    """Dollars of integer micro-dollars; small amounts keep the digits that tell them apart.

    None is an unknown price and reads "unpriced", never $0.00.
    """
    if micros is None:
        return "unpriced"
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    if digits is None:
        digits = 2 if micros == 0 or micros >= 100_000 else 4 if micros >= 1_000 else 6
    text = f"{sign}${micros / 1_000_000:,.{digits}f}"
    if digits > 2:
        whole, _, cents = text.partition(".")
        text = f"{whole}.{cents[:2]}{cents[2:].rstrip('0')}"
    return text


def price(micros: int) -> str:
    """Dollars of integer micro-dollars, to the last digit: what somebody has set is not rounded."""
    return money(micros, digits=6)


def count(number: int, noun: str) -> str:
    """How many, of what: "1 run", "1,200 runs"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def share(part: int, whole: int) -> int:
    """`part` of `whole` in percent, rounded half up; 100 only when it is reached, and of nothing.

    Never below 0: what was given back is no share.
    """
    if whole <= 0:
        return 100
    percent = (200 * max(part, 0) + whole) // (2 * whole)
    return 99 if percent >= 100 and part < whole else percent


def cost(micros: int | None, unpriced: int | None = 0) -> str:
    """What calls cost of which `unpriced` have no known price: what is known beside what is not,
    so that nobody takes the one for the whole."""
    if not unpriced:
        return money(micros)
    return f"{money(micros)} + {unpriced} unpriced" if micros else f"{unpriced} unpriced"


def exact(micros: int, unpriced: int | None = 0) -> str:
    """The same to the micro-dollar, for who points at a rounded amount."""
    if not unpriced:
        return f"{micros} micro-dollars"
    unknown = f"{count(unpriced, 'call')} without a known price"
    return f"{micros} micro-dollars + {unknown}" if micros else unknown


def so_far(micros: int, unpriced: int, kept: int) -> str:
    """What a run cost, where `kept` micro-dollars still wait for a receipt that may never come."""
    if not kept:
        return cost(micros, unpriced)
    waiting = f"{money(kept)} kept aside, no receipt yet"
    return f"{cost(micros, unpriced)} + {waiting}" if micros or unpriced else waiting


def tokens(count: int | None) -> str:
    """A token count at a glance: 812, 12.4k, 3.1M."""
    count = count or 0
    if count < 1_000:
        return str(count)
    if count < 1_000_000:
        return f"{count / 1_000:.1f}k"
    return f"{count / 1_000_000:.2f}M"


def options(choices: Iterable[str | tuple[str, str]], selected: object = "") -> SafeString:
    """The `<option>`s of a `<select>`: pairs of value and text, or values as `label` reads them."""
    chosen = str(selected)
    pairs = ((one, label(one)) if isinstance(one, str) else one for one in choices)
    return mark_safe(  # noqa: S308 - of safe pieces
        "".join(
            [
                html(
                    '<option value="{}" selected>{}</option>'
                    if str(value) == chosen
                    else '<option value="{}">{}</option>',
                    value,
                    text,
                )
                for value, text in pairs
            ]
        )
    )


def duration(seconds: float | None) -> str:
    """A span of time in at most two units: 0.4s, 42s, 3m 07s, 2h 10m, 4d 3h."""
    if seconds is None:
        return "–"
    if seconds < 0:
        seconds = 0
    if seconds < 10 and seconds != int(seconds):
        return f"{seconds:.1f}s"
    total = round(seconds)
    if total < 60:
        return f"{total}s"
    minutes, rest = divmod(total, 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h {minutes:02d}m"
    days, hours = divmod(hours, 24)
    return f"{days}d {hours}h"


def age(moment: datetime, now: datetime) -> str:
    """How long ago in one unit (12s, 4m, 3h, 6d), or in how long ("in 4m")."""
    seconds = int((now - moment).total_seconds())
    ahead, seconds = ("in ", -seconds) if seconds < 0 else ("", seconds)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{ahead}{seconds // size}{unit}"
    return f"{ahead}{seconds}s" if ahead or seconds >= 10 else "now"


def ago(moment: datetime | None, now: datetime | None = None) -> SafeString:
    """A `<time>` that shows the age and keeps it true on an open page; UTC on hover."""
    if moment is None:
        return mark_safe("")
    iso = moment.astimezone(UTC).isoformat(timespec="seconds")
    return html(
        '<time datetime="{}" title="{} {} UTC" data-ago>{}</time>',
        iso,
        iso[:10],
        iso[11:19],
        age(moment, now or datetime.now(UTC)),
    )


def elapsed(since: datetime | None, now: datetime | None = None) -> SafeString:
    """A `<time>` that counts up from `since` on an open page."""
    if since is None:
        return mark_safe("")
    utc = since.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="since {} UTC" data-elapsed>{}</time>',
        utc.isoformat(timespec="seconds"),
        utc.strftime("%Y-%m-%d %H:%M:%S"),
        duration(max(0, int(((now or datetime.now(UTC)) - since).total_seconds()))),
    )


def moment(at: datetime | None) -> SafeString:
    """A `<time>` with date and minute, shown in the viewer's zone where scripts run."""
    if at is None:
        return mark_safe("")
    utc = at.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{} UTC" data-local>{} UTC</time>',
        utc.isoformat(timespec="seconds"),
        utc.strftime("%Y-%m-%d %H:%M:%S"),
        utc.strftime("%d %b %Y, %H:%M"),
    )


@cache
def _sprite() -> str:
    return static("paperclip/icons.svg")


@lru_cache(maxsize=1024, typed=True)  # a safe string is not its unsafe twin
def icon(name: str, css: str = "", title: str = "") -> SafeString:
    """An icon of the sprite; decorative unless it has a title."""
    if title:
        return format_html(
            '<svg class="icon {}" role="img"><title>{}</title><use href="{}#{}"/></svg>',
            css,
            title,
            _sprite(),
            name,
        )
    return format_html(
        '<svg class="icon {}" aria-hidden="true"><use href="{}#{}"/></svg>', css, _sprite(), name
    )


@lru_cache(maxsize=256, typed=True)
def glyph(family: str, status: str) -> SafeString:
    """The shape and colour of a status; its name is the accessible text.

    `family` is one of issue, run, priority, agent.
    """
    if status == "running":
        return mark_safe('<span class="pulse" role="img" aria-label="Running"></span>')
    key = f"{_GLYPHS[family]}-{status}"
    return format_html(
        '<svg class="icon glyph" data-s="{}" role="img"><title>{}</title><use href="{}#{}"/></svg>',
        status,
        label(status),
        _sprite(),
        _SHAPES.get(key, key),
    )


def initials(name: str) -> str:
    words = [word for word in name.replace("@", " ").replace(".", " ").split() if word]
    if not words:
        return "?"
    if len(words) == 1:
        return words[0][:2]
    return words[0][0] + words[1][0]


def avatar(who: object, kind: str = "agent", css: str = "") -> SafeString:
    """Initials on a quiet colour that stays the same for a name. Square for agents, round else.

    `who` is a name, or somebody who reads as one: a person shows the same face wherever they are.
    """
    return _face(str(who), kind, css)


@lru_cache(maxsize=4096, typed=True)
def _face(name: str, kind: str, css: str) -> SafeString:
    return format_html(
        '<span class="avatar {}" data-kind="{}" data-hue="{}" aria-hidden="true">{}</span>',
        css,
        kind,
        zlib.crc32(name.encode()) % 6,
        initials(name),
    )


def swatch(color: str) -> SafeString:
    """A dot in a label's own colour, `#rrggbb`: an attribute, which the page's policy allows."""
    return format_html(
        '<svg class="swatch" viewBox="0 0 8 8" aria-hidden="true"><circle cx="4" cy="4" r="4"'
        ' fill="{}"/></svg>',
        color,
    )
