"""How things look on the wire: JSON, names, moments, pages, and who is calling.

Every app's `api.py` stands on this; it knows no routes. Bodies are `Body` classes (camelCase,
bounded, no word on who acts), answers are plain dictionaries that `answer` writes with orjson:
several times cheaper than a model class a row, and lists are the most read thing of all.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Annotated, Any, TypeVar, cast

import orjson
from django.core.exceptions import ValidationError as FieldError
from django.db.models import Field as ModelField
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.encoding import escape_uri_path
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)
from pydantic.alias_generators import to_camel

from companies import access, moments, rows
from companies.errors import Forbidden, Invalid, NotFound
from companies.models import Company

M = TypeVar("M", bound=Model)

MAX_PAGE = 500
DEFAULT_PAGE = 100
MAX_DEPTH = 40
INT4 = 2_147_483_647
INT8 = 9_223_372_036_854_775_807

# A caller is who their credential says; a body cannot speak for somebody else.
ACTOR_FIELDS = frozenset(
    {
        "actorId", "actorType", "actorAgentId", "actorUserId", "authorAgentId", "authorUserId",
        "authorType", "createdByAgentId", "createdByUserId", "createdByRunId", "updatedByAgentId",
        "updatedByUserId", "decidedByUserId",
    }
)  # fmt: skip


# --- what comes in ---------------------------------------------------------------------------


def _no_nul(value: str) -> str:
    if "\x00" in value:
        raise ValueError("must not contain NUL")
    return value


Text = Annotated[str, AfterValidator(_no_nul)]
Trimmed = Annotated[str, StringConstraints(strip_whitespace=True), AfterValidator(_no_nul)]
Line = Annotated[str, Field(max_length=500), AfterValidator(_no_nul)]
Prose = Annotated[str, Field(max_length=100_000), AfterValidator(_no_nul)]
Limit = Annotated[int, Field(ge=1, le=MAX_PAGE)]
Count = Annotated[int, Field(ge=0, le=INT8, strict=True)]
Cursor = Annotated[str, Field(max_length=400), AfterValidator(_no_nul)]
Moment = Annotated[AwareDatetime, AfterValidator(moments.in_utc)]


class Body(BaseModel):
    """The base of every request body. Unknown keys are ignored, so that a client of another
    version still works; keys that name an actor or a tenant are refused."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _nobody_else(cls, values: Any) -> Any:
        if isinstance(values, dict):
            known = {field.alias or name for name, field in cls.model_fields.items()}
            claimed = ACTOR_FIELDS.intersection(values) - known
            if claimed:
                raise ValueError(f"{', '.join(sorted(claimed))}: who acts follows from the key")
        return values

    def given(self) -> dict[str, Any]:
        """The fields that the caller really sent, by their Python names."""
        return {name: getattr(self, name) for name in self.model_fields_set}


def complaint(kind: str, message: str, context: Mapping[str, Any]) -> tuple[str, str]:
    """What pydantic found wrong with a value, as (code, sentence).

    The length of a text that was looked at before is told as one of "items": only a list or an
    object has those, and there it says so.
    """
    if kind in ("too_short", "too_long") and context.get("field_type") == "Value":
        short = kind == "too_short"
        bound = context["min_length" if short else "max_length"]
        unit = "character" if bound == 1 else "characters"
        least = "at least" if short else "at most"
        return f"string_{kind}", f"String should have {least} {bound} {unit}"
    return kind, message


def loads(raw: bytes) -> Any:
    """Parse a body. Raises Invalid for what PostgreSQL or a stack could not hold."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise Invalid("invalid_json", f"The body is not valid JSON: {error.msg}.") from None
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH or b"\\u0000" in raw:
        _inspect(value)
    return value


def _inspect(value: Any) -> None:
    """Refuse NUL and deep nesting, without recursion."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.keys())
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            elif isinstance(item, str) and "\x00" in item:
                raise Invalid("invalid_text", "Text must not contain NUL.")
        if not below:
            return
        level = below
    raise Invalid("too_deep", f"JSON may be nested {MAX_DEPTH} levels deep.")


def principal(request: HttpRequest) -> access.Principal:
    """Who is calling; proved by `paperclip/callers.py` before any operation runs."""
    return cast(access.Principal, request.auth)  # type: ignore[attr-defined]


def contribution(caller: access.Principal) -> access.Action:
    """The right that taking part in the work asks for: people operate, agents work."""
    return "work" if caller.kind in ("agent", "run") else "operate"


def user_only(caller: access.Principal) -> uuid.UUID:
    """The person's id. Raises Forbidden for all others."""
    if caller.user_id is None:
        raise Forbidden("people_only", "Only a person may do this.")
    return caller.user_id


def agent_only(caller: access.Principal) -> uuid.UUID:
    """The agent's id. Raises Forbidden for people."""
    if caller.agent_id is None:
        raise Forbidden("agents_only", "Only an agent does this.")
    return caller.agent_id


def in_companies(
    caller: access.Principal, rows: QuerySet[Any], field: str = "company"
) -> QuerySet[Any]:
    """The rows that lie in a company of the caller; all else does not exist for them."""
    if caller.roles is not None:
        return rows.filter(**{f"{field}_id__in": list(caller.roles)})
    if caller.kind == "user":
        return rows.filter(**{f"{field}__memberships__user_id": caller.user_id})
    if caller.kind == "system":
        return rows
    return rows.filter(**{f"{field}_id": caller.company_id})


def company(request: HttpRequest, ref: str, action: access.Action | None = "view") -> Company:
    """The company of the address; `action` None means to take part in its work."""
    caller = principal(request)
    return access.company(caller, _no_nul_ref(ref), action or contribution(caller))


def company_id(request: HttpRequest, ref: str, action: access.Action | None = "view") -> uuid.UUID:
    """The same for those who need its id only."""
    caller = principal(request)
    return access.company_id(caller, _no_nul_ref(ref), action or contribution(caller))


def _no_nul_ref(ref: str) -> str:
    if "\x00" in ref or len(ref) > 200:
        raise NotFound()
    return ref


def word(value: str) -> str:
    """A name in an address, such as a document's key. What cannot be one is not found."""
    return _no_nul_ref(value)


def parse_id(value: str, name: str = "id") -> uuid.UUID:
    """A UUID, or Invalid."""
    try:
        return uuid.UUID(value)
    except (ValueError, AttributeError):
        raise Invalid("invalid_id", f"{name} is not a UUID.", field=name) from None


def one_of_company(
    model: type[M], company_id: uuid.UUID, value: uuid.UUID | None, field: str, *only: str
) -> M | None:
    """The row that an id in a body names, in the caller's company; of its fields `only` these are
    read at once. Raises NotFound."""
    if value is None:
        return None
    found = rows.find(model, *only, id=value, company_id=company_id)
    if found is None:
        raise NotFound(f"{field} names nothing in this company.", code="unknown_reference")
    return found


def if_match(request: HttpRequest) -> int | None:
    """The version that the caller has seen, from `If-Match: "7"`. Raises Invalid."""
    header = request.headers.get("If-Match")
    if header is None or header.strip() == "*":
        return None
    digits = header.strip().removeprefix("W/").strip('"')
    if not digits.isascii() or not digits.isdigit() or len(digits) > 9:
        raise Invalid("invalid_if_match", 'If-Match holds a version, such as "7".')
    return int(digits)


class Answer(BaseModel):
    """The base of what comes back (`answers.py` of each app). Answers are written without these
    classes: they say what is in one, and that more keys may follow with the next version."""

    model_config = ConfigDict(alias_generator=to_camel, extra="allow")


# --- what goes out ---------------------------------------------------------------------------


def moment(value: datetime | None) -> str | None:
    """ISO 8601 in UTC with milliseconds and Z."""
    if value is None:
        return None
    if value.tzinfo is not UTC:  # the database gives UTC
        value = value.astimezone(UTC)
    return value.isoformat(timespec="milliseconds")[:-6] + "Z"


def moment_sql(column: str) -> str:
    """The SQL that writes a moment as `moment` does. `column` is a name of ours, never a caller's
    word."""
    return f"to_char({column} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')"


def cents(micros: int | None) -> int | float | None:
    """Micro-dollars as cents: a whole number where it is one. Unknown stays unknown."""
    if micros is None:
        return None
    whole, rest = divmod(micros, 10_000)
    return micros / 10_000 if rest else whole


def known(micros: int, unpriced: int) -> int | None:
    """A sum of costs of which `unpriced` calls have none: unknown, never 0, while nothing else is
    in it."""
    return None if unpriced and not micros else micros


def _default(value: Any) -> Any:
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{type(value)} has no JSON form")


def dumps(value: Any) -> bytes:
    """The JSON of an answer."""
    return orjson.dumps(
        value, default=_default, option=orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_NON_STR_KEYS
    )


def answer(value: Any, status: int = 200, *, version: int | None = None) -> HttpResponse:
    """A JSON response; `version` becomes its ETag, for If-Match."""
    response = written(dumps(value), status)
    if version is not None:
        response["ETag"] = f'"{version}"'
    return response


def written(body: bytes, status: int = 200) -> HttpResponse:
    """A response of JSON that is written already."""
    response = HttpResponse(body, content_type="application/json", status=status)
    response["Cache-Control"] = "no-store"
    return response


def refusal(
    status: int, code: str, message: str, details: Mapping[str, Any] | None = None
) -> HttpResponse:
    """The one shape of all errors. A 400 always lists what is wrong, if only itself."""
    details = dict(details or {})
    if status == 400:
        details.setdefault("issues", [{"path": [], "code": code, "message": message}])
    return answer({"error": message, "code": code, "details": details}, status)


# --- pages by key ----------------------------------------------------------------------------


def page(
    request: HttpRequest,
    rows: QuerySet[Any],
    *,
    keys: Sequence[str],
    shape: Callable[[list[Any]], Iterable[Any]],
    limit: int = DEFAULT_PAGE,
    cursor: str | None = None,
) -> HttpResponse:
    """One page of `rows` as a bare array; the next page's address goes into the Link header.

    `keys` are the fields to order by (with `-` for descending, all in one direction), the last
    one unique; rows are dictionaries or objects. `shape` turns the page's rows into answers.
    """
    found = list(from_cursor(rows, keys, cursor)[: limit + 1])
    more = len(found) > limit
    found = found[:limit]
    response = answer(list(shape(found)))
    if more:
        link_next(request, response, found[-1], keys)
    return response


def from_cursor(rows: QuerySet[Any], keys: Sequence[str], cursor: str | None) -> QuerySet[Any]:
    """The rows behind a cursor, in the order of `keys`. Raises Invalid for a foreign cursor."""
    rows = rows.order_by(*keys)
    return rows.filter(_after(rows.model, keys, cursor)) if cursor else rows


def link_next(request: HttpRequest, response: HttpResponse, last: Any, keys: Sequence[str]) -> None:
    """Say where the page after the row `last` is."""
    query, cursor = request.GET.copy(), _cursor(last, keys)
    query["cursor"] = cursor
    response["Link"] = f'<{escape_uri_path(request.path)}?{query.urlencode()}>; rel="next"'
    response["X-Next-Cursor"] = cursor


def _cursor(row: Any, keys: Sequence[str]) -> str:
    get = row.get if isinstance(row, dict) else lambda name: getattr(row, name)
    values = [get(key.lstrip("-")) for key in keys]
    packed = orjson.dumps([",".join(keys), *values])
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def cursor_values(model: type[Model], keys: Sequence[str], cursor: str) -> list[Any]:
    """The values of `keys` in the row that a cursor names. Raises Invalid for a foreign cursor."""
    bad = Invalid("invalid_cursor", "This cursor does not belong to this list.", field="cursor")
    try:
        raw = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        order, *values = raw
        if order != ",".join(keys) or len(values) != len(keys):
            raise bad
        names = [key.lstrip("-") for key in keys]
        values = [
            _field(model, name).to_python(value) for name, value in zip(names, values, strict=True)
        ]
    except (ValueError, TypeError, FieldError):
        raise bad from None
    if any(value is None for value in values):
        raise bad
    try:
        return [moments.in_utc(each) if isinstance(each, datetime) else each for each in values]
    except ValueError:
        raise bad from None


def _after(model: type[Model], keys: Sequence[str], cursor: str) -> Q:
    names, values = [key.lstrip("-") for key in keys], cursor_values(model, keys, cursor)
    step = "lt" if keys[0].startswith("-") else "gt"
    # The first, redundant term gives the index its range.
    beyond = Q(**{f"{names[0]}__{step}e": values[0]})
    ways = Q()
    for place, name in enumerate(names):
        same = dict(zip(names[:place], values[:place], strict=True))
        ways |= Q(**same, **{f"{name}__{step}": values[place]})
    return beyond & ways


def _field(model: type[Model], name: str) -> ModelField[Any, Any]:
    return cast("ModelField[Any, Any]", model._meta.get_field(name))
