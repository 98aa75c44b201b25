"""The one file that an adapter imports: what it is handed, what it says, how it fails.

An adapter knows no models and no Django. It gets a `Brief` (plain data), yields plain events
and raises `AdapterError`. The engine turns events into rows, pages and money.
Read next: `agents/adapters/openai.py` for a short complete example.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Literal, Protocol

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from agents.adapters import lenient


class Code(StrEnum):
    """Why a run did not succeed. `agents/outcomes.py` says what each means and what to do."""

    CONFIG_INVALID = "config_invalid"  # the configuration cannot work as it stands
    NOT_INSTALLED = "not_installed"  # the command is not on this machine
    AUTH_FAILED = "auth_failed"  # 401, 403, not logged in
    MODEL_NOT_FOUND = "model_not_found"
    BAD_REQUEST = "bad_request"  # the provider refuses the request as such
    CONTEXT_TOO_LONG = "context_too_long"
    QUOTA_EXHAUSTED = "quota_exhausted"  # money or plan used up: waiting alone does not help
    RATE_LIMITED = "rate_limited"  # 429, with Retry-After where given
    PROVIDER_OVERLOADED = "provider_overloaded"  # 5xx, 529
    CONNECT_FAILED = "connect_failed"  # nothing was sent
    ADDRESS_REFUSED = "address_refused"  # the outbound policy forbids this address
    STREAM_BROKEN = "stream_broken"  # reset or cut in the middle of an answer
    TRUNCATED_OUTPUT = "truncated_output"  # the token limit cut the answer
    REFUSED = "refused"  # the model or its filter declined
    TIMED_OUT = "timed_out"  # wall clock
    IDLE = "idle_timeout"  # no sign of life for too long
    OUTPUT_LIMIT = "output_limit"  # more output than allowed
    TURN_LIMIT = "turn_limit"  # more model turns than allowed
    LOOP = "loop_detected"  # it goes round in circles
    EXIT_NONZERO = "exit_nonzero"
    REPORTED = "reported_failure"  # the agent itself says that it could not do it
    BAD_RESULT = "bad_result"  # the result does not follow the result protocol
    SIMULATED = "simulated_failure"  # the demo agent, failing on purpose
    WORKSPACE_FAILED = "workspace_failed"  # the work tree could not be made
    WORKSPACE_BUSY = "workspace_busy"  # another run is still in it
    SETUP_FAILED = "setup_failed"  # the command that sets a new work tree up
    ISOLATION_FAILED = "isolation_failed"  # the walls around the program could not be put up
    CANCELLED = "cancelled"
    LOST = "lost"  # the worker that carried the run is gone
    BUDGET = "budget_exhausted"
    INTERNAL = "internal_error"  # a fault of ours


class AdapterError(Exception):
    """A run ends without success, with a reason that people can act on.

    `retry_after` is in seconds, as the provider asked. `acted` is true when something outside
    may already have changed, so that nothing may be repeated blindly; `unknown` when nobody can
    tell whether the work was done, so that a person decides.
    """

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        retry_after: float | None = None,
        acted: bool = False,
        unknown: bool = False,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after = retry_after
        self.acted = acted or unknown
        self.unknown = unknown
        self.detail = dict(detail or {})


class Throttled(AdapterError):
    """We hold a call back ourselves, because of the provider's limits or its trouble: nothing has
    failed, and `retry_after` seconds later it may go better.

    `diverts` is true when another provider may be asked instead.
    """

    def __init__(
        self, code: Code, message: str, *, retry_after: float | None, diverts: bool = False
    ) -> None:
        super().__init__(code, message, retry_after=retry_after)
        self.diverts = diverts


# --- what an adapter says ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """The first sign of life: the model or command that answers, the session it continues."""

    model: str = ""
    session_id: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of output, in order. Raw: the writer cleans NUL and bad UTF-8, the page escapes."""

    text: str
    channel: Literal["answer", "thinking", "stdout", "stderr"] = "answer"


@dataclass(frozen=True, slots=True)
class Note:
    """A word of the adapter's own on what the run is at, for who watches; no agent's output."""

    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """Something the agent does: a tool call or a command. Sent twice, `start` then `end`."""

    id: str
    name: str
    phase: Literal["start", "end"]
    input: Mapping[str, Any] | None = None
    output: str = ""
    is_error: bool = False
    duration_ms: int | None = None


MAX_TOKENS = 10**12  # of one call, and of each kind


@dataclass(frozen=True, slots=True)
class Usage:
    """What one model call used, normalised (see docs/adapters.md, "Usage").

    `input_tokens` is the total and includes cached and cache-written tokens, and these include
    those written for an hour; `output_tokens` is the total and includes reasoning. `cost_micros`
    is what the provider itself charged, in micro-dollars, None when it did not say. `call` numbers
    the calls of a run from 1 and makes the booking idempotent: the same number again is the same
    call.
    """

    call: int
    provider: str
    model: str
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cost_micros: int | None = None
    source: Literal["reported", "estimated", "none"] = "reported"

    def __post_init__(self) -> None:
        # Names come from servers and programs: what no database takes would lose the cost.
        for name in ("provider", "model"):
            object.__setattr__(self, name, lenient.storable(getattr(self, name)))


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a run that went well, and what it amounts to.

    `status` is a wish for the issue (None: the engine decides by the agent's policy);
    `summary` becomes the closing comment unless the agent already wrote its own.
    """

    summary: str = ""
    status: Literal["done", "in_review", "blocked", "in_progress", "cancelled"] | None = None
    result: Mapping[str, Any] = field(default_factory=dict)
    session_id: str = ""
    awaiting_callback: bool = False  # 202: the run goes on elsewhere and reports by itself


Event = Started | Text | Note | Step | Usage | Done


# --- what an adapter is handed -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of the issue's thread. `role` is `self` for the agent's own words."""

    role: Literal["operator", "agent", "self", "system"]
    author: str
    body: str
    at: str  # ISO 8601, UTC


@dataclass(frozen=True, slots=True)
class Task:
    """The issue, as an agent needs to know it. All of it is data, never instructions of ours."""

    id: str
    identifier: str
    title: str
    description: str
    status: str
    priority: str
    project: str = ""
    goal: str = ""
    ancestors: Sequence[str] = ()  # "ACM-3 Title", nearest first
    children: Sequence[str] = ()  # "ACM-9 done Title"
    on_finish: Literal["done", "in_review"] = "in_review"  # what an answer without tools means


@dataclass(frozen=True, slots=True)
class Route:
    """One way to a model. Position 0 is the agent's own choice, the others are its fallbacks in
    order; a run may begin with one of these when the provider before it is known to be away."""

    connection_id: str
    name: str
    kind: Literal["openai", "anthropic"]
    model: str
    base_url: str = ""
    key: str = field(default="", repr=False)
    position: int = 0


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool a chat model may call; `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    acts: bool = True  # it changes something, so the run may not be replayed after it


@dataclass(frozen=True, slots=True)
class ToolResult:
    text: str
    is_error: bool = False
    closes: bool = False  # the agent has reported; the run may end after this turn


class CallTool(Protocol):
    def __call__(self, name: str, arguments: Mapping[str, Any]) -> Awaitable[ToolResult]: ...


class GrantCall(Protocol):
    """Asked before each model call with the worst case; raises AdapterError(BUDGET) to end."""

    def __call__(
        self, *, provider: str, model: str, input_tokens: int, max_output_tokens: int
    ) -> Awaitable[None]: ...


class AdmitCall(Protocol):
    """Asked before each call on a route, with the most tokens it may take. Waits a short while
    for the provider's limits; raises Throttled when it would be long."""

    def __call__(self, route: Route, *, tokens: int) -> Awaitable[None]: ...


class ReportCall(Protocol):
    """Told, without waiting, how an admitted call ended: `tokens` that it used, whether anything
    of an answer was seen, and the failure, if it was one."""

    def __call__(
        self, route: Route, *, taken: int, tokens: int, answered: bool, error: AdapterError | None
    ) -> None: ...


class Divert(Protocol):
    """Asked whether the run may go on with this route, because the one before has failed."""

    def __call__(self, route: Route, because: AdapterError) -> Awaitable[bool]: ...


async def no_tools(name: str, arguments: Mapping[str, Any]) -> ToolResult:
    return ToolResult(f"unknown tool {name}", is_error=True)


async def always_granted(
    *, provider: str, model: str, input_tokens: int, max_output_tokens: int
) -> None:
    return None


def ignore_usage(usage: Usage) -> None:
    return None


async def always_admitted(route: Route, *, tokens: int) -> None:
    return None


def ignore_report(
    route: Route, *, taken: int, tokens: int, answered: bool, error: AdapterError | None
) -> None:
    return None


async def always_diverted(route: Route, because: AdapterError) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Brief:
    """Everything a run knows when it starts. Plain data; secrets are already resolved."""

    run_id: str
    agent_id: str
    company_id: str
    agent_name: str
    company_name: str
    reason: str  # wake reason, see docs/api.md
    config: Mapping[str, Any]  # validated by the adapter's own `Config`
    attempt: int = 1
    instructions: str = ""  # the operator's instructions to the agent, Markdown
    task: Task | None = None
    thread: Sequence[Message] = ()  # oldest first
    payload: Mapping[str, Any] = field(default_factory=dict)  # PAPERCLIP_WAKE_PAYLOAD_JSON
    # PAPERCLIP_* and what was bound
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    # name -> value, of this agent
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    api_url: str = ""
    api_key: str = field(default="", repr=False)  # the run's own token
    run_dir: str = ""  # an empty folder of this run's own, 0700, or ""
    workspace: str = ""  # the folder the operator set, or ""
    repository: str = ""  # Git's own folder of the workspace where it lies elsewhere, or ""
    agent_dir: str = ""  # a folder of this agent's own that lives across runs, or ""
    session: Mapping[str, Any] = field(default_factory=dict)
    tools: Sequence[ToolSpec] = ()
    call_tool: CallTool = no_tools
    grant_call: GrantCall = always_granted
    routes: Sequence[Route] = ()  # of an agent that uses provider connections, first choice first
    admit_call: AdmitCall = always_admitted
    report_call: ReportCall = ignore_report
    divert: Divert = always_diverted
    # Called, without waiting, with the use of a model call that was cut short by cancellation:
    # nothing can be yielded then, yet the provider bills what it generated.
    book_usage: Callable[[Usage], None] = ignore_usage


class Config(BaseModel):
    """Base of every adapter's configuration: camelCase on the wire, unknown keys refused."""

    model_config = ConfigDict(
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        str_max_length=20_000,
        hide_input_in_errors=True,  # a configuration may hold keys, and a message is for everybody
    )

    def secret_names(self) -> set[str]:
        """Names of the secrets that a run with this configuration will ask for."""
        return set()


# `Adapter.Config` hides the class of that name inside an adapter.
AnyConfig = Config
ConfigClass = type[Config]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of "test this configuration"."""

    name: str
    ok: bool
    message: str
    hint: str = ""


class Adapter(Protocol):
    """What a file in this folder provides. One instance serves all runs of a process."""

    type: ClassVar[str]
    label: ClassVar[str]
    description: ClassVar[str]
    Config: ClassVar[ConfigClass]
    retry_safe: ClassVar[bool]  # may a lost run that has not acted simply be started again?
    uses_tools: ClassVar[bool]  # does the engine hand it the tools?
    needs_folder: ClassVar[bool]  # does it want `run_dir` and `agent_dir`?
    simulated: ClassVar[bool]

    def run(self, brief: Brief) -> AsyncGenerator[Event, None]:
        """Yield events until `Done`; raise AdapterError otherwise.

        Cancellation is asyncio's: clean up (sockets, process trees) in `finally`.
        """
        ...

    async def test(self, config: AnyConfig, secrets: Mapping[str, str]) -> list[Check]:
        """Really call out and explain what happened, line by line; a bad answer is a line too."""
        ...

    async def aclose(self) -> None:
        """Release pools and clients at shutdown."""
        ...


OnProgress = Callable[[str], None]
