"""When a limit is lifted, by what a provider or a program says: in a field, a header or in words.

    "resets_at": 1788879437          Please try again in 1m3.5s
    limit reached|1749924000         resets 4 a.m. (Asia/Tokyo)
    x-ratelimit-reset-tokens: 6m0s   try again at Oct 12th, 2025 9:30 AM

Everything comes back as seconds from now, at most a week. What cannot be understood, names a zone
or a time that does not exist, or has passed, is None: whoever asks then goes by its own table.
Read next: `agents/adapters/failures.py`.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

WEEK_SECONDS = 7 * 24 * 3600.0
MAX_CHARS = 16_000  # of a text that is looked through
# A time of day that went by this long ago is over, and not tomorrow's.
JUST_PASSED = timedelta(minutes=5)
LOCALTIME = "/etc/localtime"

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_UNIT = (
    r"(?:milliseconds?|msecs?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d|weeks?|w)"
)
_PART = rf"(?:\d{{1,9}}(?:\.\d{{1,9}})?\s*|an?\s+){_UNIT}(?![a-z])"
_SPAN = rf"{_PART}(?:(?:\s|,|and\b){{0,6}}{_PART}){{0,5}}"

_IN_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,9})?\s*|\ban?\s+)(ms|milli|[smhdw])[a-z]*", re.I)
_ALL_SPAN = re.compile(_SPAN, re.I)
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?")

# Fields, also inside a JSON text that stands, escaped, in another one.
_AT_FIELD = re.compile(
    r"(?:\bresets?[_-]?at|\breset[_-]?time(?:stamp)?|quotaResetTime(?:Stamp)?)"
    r"[\\\"'\s]{0,6}[:=][\\\"'\s]{0,6}([0-9][0-9TZ:.+\-]{5,40})",
    re.I,
)
_IN_FIELD = re.compile(
    r"(?:resets?[_-]?in[_-]?(?:seconds|secs?)|reset[_-]?after(?:[_-]?seconds)?"
    r"|retry[_-]?after(?:[_-]?(?:seconds|ms))?|retry_?delay|quotaResetDelay)"
    rf"[\\\"'\s]{{0,6}}[:=][\\\"'\s]{{0,6}}({_SPAN}|\d{{1,9}}(?:\.\d{{1,9}})?)",
    re.I,
)
_IN_MILLIS = re.compile(r"[_-]ms[\\\"'\s]{0,6}[:=]", re.I)
_BAR = re.compile(r"limit reached\|(\d{10,13})\b", re.I)

_CUE = (
    r"\b(?:resets?|renews?|lifted|available(?:\s+again)?|wait|until"
    r"|(?:try(?:ing)?(?:\s+it)?\s+again|retry(?:ing)?)(?:\s+your\s+request)?)"
)
_IN_WORDS = re.compile(
    rf"{_CUE}\s+(?:again\s+)?(?:(?:in|after|for)\s+)?(?:about\s+|~)?({_SPAN})", re.I
)

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_WEEKDAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})[a-z]*\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_CLOCK = (
    r"(?:(?P<hour>\d{1,2})(?::(?P<minute>\d{2})(?::(?P<second>\d{2}))?)?"
    r"\s*(?P<half>[ap])\.?\s?m\b\.?"
    r"|(?P<hour24>\d{1,2}):(?P<minute24>\d{2})(?::(?P<second24>\d{2}))?(?![\d:])"
    r"|(?P<named>noon|midnight)\b)"
)
_ZONE = (
    r"(?:\s*\((?P<place>[A-Za-z0-9_+\-/: ]{1,40})\)"
    r"|\s*(?P<offset>(?:UTC|GMT)?[+\-]\d{1,2}(?::?\d{2})?)(?!\d)"
    r"|\s+(?P<name>(?-i:[A-Z]{1,4}T|UTC|Z)|(?:Pacific|Eastern|Central|Mountain)\s+Time)\b)?"
)
_AT = r"(?:\s*(?:at|on|by|is|:|=|·|∙|•))*\s*"
_ISO = (
    r"(?P<iso>\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?"
    r"(?:Z|[+\-]\d{2}:?\d{2})?)"
)
_WHEN = tuple(
    re.compile(_CUE + _AT + form + _ZONE, re.I)
    for form in (
        _ISO,
        rf"(?:(?:{'|'.join(_WEEKDAYS)})[a-z]*,?\s+)?{_MONTH}\s+{_DAY}"
        rf"(?:,?\s+(?P<year>\d{{4}}))?,?\s+(?:at\s+)?{_CLOCK}",
        rf"{_DAY}\s+{_MONTH}(?:,?\s+(?P<year>\d{{4}}))?,?\s+(?:at\s+)?{_CLOCK}",
        rf"(?P<weekday>{'|'.join(_WEEKDAYS)})[a-z]*,?\s+(?:at\s+)?{_CLOCK}",
        _CLOCK,
    )
)

# Abbreviations that mean one zone only, where providers write them.
ZONES = {
    "Z": "UTC", "UTC": "UTC", "GMT": "UTC", "CET": "Europe/Paris", "CEST": "Europe/Paris",
    "JST": "Asia/Tokyo",
    **dict.fromkeys(("PT", "PST", "PDT", "PACIFIC TIME"), "America/Los_Angeles"),
    **dict.fromkeys(("MT", "MST", "MDT", "MOUNTAIN TIME"), "America/Denver"),
    **dict.fromkeys(("CT", "CDT", "CENTRAL TIME"), "America/Chicago"),
    **dict.fromkeys(("ET", "EST", "EDT", "EASTERN TIME"), "America/New_York"),
}  # fmt: skip


class _Nonsense(ValueError):
    """It names a zone or a time that does not exist."""


def told(text: str, *, now: float | None = None, zone: tzinfo | None = None) -> float | None:
    """Seconds from `now` (Unix time) until the limit that `text` tells of is lifted, at most a
    week; None when it does not say. `zone` is that of a time without one."""
    text = text[:MAX_CHARS]
    now = time.time() if now is None else now
    try:
        at = _at_field(text)
        if at is None:
            wait = _in_field(text) or _in_words(text)
            if wait is not None:
                return min(wait, WEEK_SECONDS)
            at = _at_words(text, now, zone)
    except (ValueError, OverflowError):
        return None
    return None if at is None else _until(at, now)


def in_headers(headers: Mapping[str, str], *, now: float | None = None) -> float | None:
    """Seconds until the longest of the limits that the answer's headers call used up is lifted."""
    now = time.time() if now is None else now
    waits = []
    for name, value in headers.items():
        name = name.lower()
        if "ratelimit" not in name or "reset" not in name:
            continue
        rest = headers.get(name.replace("reset", "remaining"), "")
        spent = rest.strip() in ("0", "0.0") or (
            headers.get(name.replace("reset", "status"), "").lower() == "rejected"
        )
        wait = _moment_or_span(value.strip(), now) if spent else None
        if wait is not None:
            waits.append(wait)
    return max(waits, default=None)


def zone_of(env: Mapping[str, str]) -> tzinfo:
    """The zone in which a program with this environment tells the time."""
    name = env.get("TZ", "").removeprefix(":")
    if name:
        try:
            return ZoneInfo(name)
        except (OSError, ValueError, KeyError):
            return UTC  # what the C library makes of a name that it does not know
    return of_machine()


@functools.cache
def of_machine() -> tzinfo:
    """This machine's zone, whatever the process itself was told."""
    try:
        with open(LOCALTIME, "rb") as file:
            return ZoneInfo.from_file(file)
    except (OSError, ValueError):
        return UTC


# --- fields --------------------------------------------------------------------------------------


def _at_field(text: str) -> float | None:
    found = _BAR.search(text) or _AT_FIELD.search(text)
    return None if found is None else _moment(found[1])


def _moment(text: str) -> float | None:
    """Unix time in seconds or milliseconds, or an ISO date (UTC unless it says otherwise)."""
    if _NUMBER.fullmatch(text):
        value = float(text)
        return value / 1000 if value >= 1e12 else value if value >= 1e9 else None
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _in_field(text: str) -> float | None:
    found = _IN_FIELD.search(text)
    if found is None:
        return None
    if not _NUMBER.fullmatch(found[1]):
        return _span(found[1])
    return float(found[1]) * (0.001 if _IN_MILLIS.search(found[0]) else 1.0)


def _moment_or_span(text: str, now: float) -> float | None:
    try:
        if _NUMBER.fullmatch(text) and float(text) < 1e9:
            return min(float(text), WEEK_SECONDS)
        if _ALL_SPAN.fullmatch(text):
            return min(_span(text), WEEK_SECONDS)
        at = _moment(text)
    except (ValueError, OverflowError):
        return None
    return None if at is None else _until(at, now)


def _until(at: float, now: float) -> float | None:
    return min(at - now, WEEK_SECONDS) if at > now else None


# --- words ---------------------------------------------------------------------------------------


def _in_words(text: str) -> float | None:
    found = _IN_WORDS.search(text)
    return None if found is None else _span(found[1])


def _span(text: str) -> float:
    total = 0.0
    for number, unit in _IN_SPAN.findall(text):
        count = 1.0 if number.strip().lower() in ("a", "an") else float(number)
        total += count * UNITS["ms" if unit.lower().startswith(("ms", "mil")) else unit.lower()]
    return total


def _at_words(text: str, now: float, zone: tzinfo | None) -> float | None:
    for form in _WHEN:
        found = form.search(text)
        if found is not None:
            said = found.groupdict()
            return _when(said, datetime.fromtimestamp(now, _zone(said) or zone or of_machine()))
    return None


def _when(said: Mapping[str, str | None], here: datetime) -> float | None:
    """The moment that was said, seen from `here`: now, in the zone that holds."""
    if iso := said.get("iso"):
        moment = datetime.fromisoformat(iso)
        return (moment if moment.tzinfo else moment.replace(tzinfo=here.tzinfo)).timestamp()
    hour, minute, second = _clock(said)
    at = here.replace(hour=hour, minute=minute, second=second, microsecond=0, fold=0)
    if said.get("month"):
        return _on_date(said, at, here).timestamp()
    days = 1
    if weekday := said.get("weekday"):
        days = 7
        at += timedelta(days=(_WEEKDAYS.index(weekday.lower()) - here.weekday()) % 7)
    if at <= here - JUST_PASSED:
        at += timedelta(days=days)  # of the wall clock: the next day's same time
    return at.timestamp()


def _on_date(said: Mapping[str, str | None], at: datetime, here: datetime) -> datetime:
    month = _MONTHS.index((said["month"] or "").lower()) + 1
    at = at.replace(month=1, day=1)
    if year := said.get("year"):
        return at.replace(year=int(year), month=month, day=int(said["day"] or 0))
    # Without a year the nearest one is meant.
    near = []
    for year_ in (here.year - 1, here.year, here.year + 1):
        try:
            near.append(at.replace(year=year_, month=month, day=int(said["day"] or 0)))
        except ValueError:
            continue  # the 29th of February
    if not near:
        raise _Nonsense(said["day"])
    return min(near, key=lambda moment: abs(moment - here))


def _clock(said: Mapping[str, str | None]) -> tuple[int, int, int]:
    if named := said.get("named"):
        return (12, 0, 0) if named.lower() == "noon" else (0, 0, 0)
    if said.get("hour24"):
        return tuple(int(said.get(f"{part}24") or 0) for part in ("hour", "minute", "second"))  # type: ignore[return-value]
    hour = int(said.get("hour") or 0)
    if not 1 <= hour <= 12:
        raise _Nonsense(hour)
    hour = hour % 12 + (12 if (said.get("half") or "").lower() == "p" else 0)
    return hour, int(said.get("minute") or 0), int(said.get("second") or 0)


def _zone(said: Mapping[str, str | None]) -> tzinfo | None:
    """The zone that was named, None when none was. Raises _Nonsense for one that is none."""
    named = said.get("place") or said.get("name")
    if named:
        name = ZONES.get(" ".join(named.upper().split()), "" if said.get("name") else named)
        if re.fullmatch(r"(?:UTC|GMT)?[+\-]\d{1,2}(?::?\d{2})?", name):
            return _offset(name)
        try:
            return ZoneInfo(name)
        except (OSError, ValueError, KeyError) as error:
            raise _Nonsense(named) from error
    return _offset(said["offset"] or "") if said.get("offset") else None


def _offset(text: str) -> tzinfo:
    sign, hours, minutes = re.fullmatch(r"[A-Za-z]*([+\-])(\d{1,2}):?(\d{2})?", text).groups()  # type: ignore[union-attr]
    away = timedelta(hours=int(hours), minutes=int(minutes or 0))
    return timezone(-away if sign == "-" else away)
