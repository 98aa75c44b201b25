"""What can become of a run, in one table: what each code means, what people can do about it, and
whether trying again may help by itself.

The adapters' vocabulary (`adapters/base.py`) says *that* something happened, this file says what
follows. Delays are in seconds.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from agents.adapters.base import Code
from companies import format

RETRY_SECONDS = (120, 600, 1_800, 7_200)
MAX_RETRIES = len(RETRY_SECONDS)
MAX_BROKEN_RETRIES = 2  # with the one of the call itself, `adapters/line.py`: three
MAX_LOST_ATTEMPTS = 3
LONGEST_WAIT_SECONDS = 24 * 3600
LONGEST_QUOTA_SECONDS = 7 * 24 * 3600
JITTER = 0.2
LONGEST_JITTER_SECONDS = 300.0  # after a moment that was named: nobody waits hours for nothing


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row of the table. `remedy` is what people can do when no other attempt follows,
    `meanwhile` while one is queued or going on; empty where that changes nothing."""

    code: str
    title: str
    meaning: str
    remedy: str
    meanwhile: str = ""
    retries: int = MAX_RETRIES  # of a run, where a failure is repeated at all
    transient: bool = False  # another attempt may go better without anybody doing anything


def _row(
    code: str,
    title: str,
    meaning: str,
    remedy: str,
    *,
    meanwhile: str = "",
    transient: bool = False,
    retries: int = MAX_RETRIES,
) -> Outcome:
    return Outcome(str(code), title, meaning, remedy, meanwhile, retries, transient)


AGAIN = "Nothing: it is tried again by itself."


TABLE: dict[str, Outcome] = {
    row.code: row
    for row in (
        _row(
            Code.CONFIG_INVALID,
            "Configuration does not work",
            "The agent's configuration cannot work as it stands.",
            "Correct the agent's configuration and use “Test this configuration”.",
        ),
        _row(
            Code.NOT_INSTALLED,
            "Command not found",
            "The command is not on the machine that runs the agents.",
            "Install it there, or correct the command in the agent's configuration.",
        ),
        _row(
            Code.AUTH_FAILED,
            "Key not accepted",
            "The provider or service does not accept the key, or nobody is signed in.",
            "Store a valid key under Settings, Secrets, and name it in the agent's configuration.",
        ),
        _row(
            Code.MODEL_NOT_FOUND,
            "Model unknown",
            "The provider does not know this model, or the key may not use it.",
            "Choose another model in the agent's configuration.",
        ),
        _row(
            Code.BAD_REQUEST,
            "Request refused",
            "The provider or service refuses the request as such.",
            "Read its message in the run's log; correct the configuration.",
        ),
        _row(
            Code.CONTEXT_TOO_LONG,
            "Too much to read",
            "Issue, thread and instructions together exceed what the model can take.",
            "Shorten the instructions or split the issue; or choose a model with more context.",
        ),
        _row(
            Code.QUOTA_EXHAUSTED,
            "Quota used up",
            "The account at the provider has no money or no quota left.",
            "Top up the account, then resume the agent.",
            meanwhile="It is tried again by itself when the limit is lifted. A provider that says"
            " no time for it is released under Providers, once the account is topped up.",
        ),
        _row(
            Code.RATE_LIMITED,
            "Too many requests",
            "The provider or service asks to slow down.",
            "Wait a while, then run the agent again. If it happens often, lower the concurrency.",
            meanwhile=f"{AGAIN} If it happens often, lower the concurrency.",
            transient=True,
        ),
        _row(
            Code.PROVIDER_OVERLOADED,
            "Provider has trouble",
            "The provider or service is overloaded or broken at the moment.",
            "See whether it is well again, and what it may have done already; then run the agent"
            " again.",
            meanwhile=AGAIN,
            transient=True,
        ),
        _row(
            Code.CONNECT_FAILED,
            "No connection",
            "The address did not answer; nothing was sent.",
            "Check the address and whether the server runs; then run the agent again.",
            meanwhile="Check the address and whether the server runs. It is tried again by itself.",
            transient=True,
        ),
        _row(
            Code.ADDRESS_REFUSED,
            "Address not allowed",
            "The outbound policy of this instance forbids the address.",
            "Allow the host with PAPERCLIP_OUTBOUND_ALLOW, or correct the address.",
        ),
        _row(
            Code.STREAM_BROKEN,
            "Answer broke off",
            "The connection was lost in the middle of the answer, or the answer was empty or"
            " damaged: the fault of the other side.",
            "Look at what the run may have done already, then run the agent again.",
            meanwhile=AGAIN,
            transient=True,
            retries=MAX_BROKEN_RETRIES,
        ),
        _row(
            Code.TRUNCATED_OUTPUT,
            "Answer cut off",
            "The token limit cut the answer.",
            "Raise the maximum of output tokens, or split the issue.",
        ),
        _row(
            Code.REFUSED,
            "Model declined",
            "The model, or the provider's filter, declined to answer.",
            "Rephrase the issue or the instructions.",
        ),
        _row(
            Code.TIMED_OUT,
            "Took too long",
            "The run reached its wall-clock limit.",
            "Raise the agent's time limit, or split the issue.",
        ),
        _row(
            Code.IDLE,
            "Went silent",
            "Nothing was heard from the run for too long.",
            "Look at the end of the log; raise the idle limit if silence is normal.",
        ),
        _row(
            Code.OUTPUT_LIMIT,
            "Too much output",
            "The run wrote more than its limit allows.",
            "Make the command less talkative, or raise its output limit.",
        ),
        _row(
            Code.TURN_LIMIT,
            "Too many turns",
            "The model used all the turns that a run may have.",
            "Split the issue; then run the agent again.",
        ),
        _row(
            Code.LOOP,
            "Went round in circles",
            "The run did the same again and again, or spent far more than this agent does.",
            "Look at the evidence on the agent's page, then release the agent.",
        ),
        _row(
            Code.EXIT_NONZERO,
            "Command failed",
            "The command ended with an error.",
            "Read the end of the log, correct the cause, run the agent again.",
        ),
        _row(
            Code.REPORTED,
            "Agent gave up",
            "The agent itself says that it could not do the work.",
            "Read its words; put right what it lacks, then wake it again.",
        ),
        _row(
            Code.BAD_RESULT,
            "Result not understood",
            "The result does not follow the result protocol.",
            "See docs/adapters.md for the protocol; correct the command or server.",
        ),
        _row(
            Code.SIMULATED,
            "Simulated failure",
            "This simulated agent is set to fail now and then.",
            "Nothing is wrong. Run the agent again, or set its share of failures (failRate) to 0.",
        ),
        _row(
            Code.WORKSPACE_FAILED,
            "No work tree",
            "The issue's own work tree could not be made from the project's repository, so nothing"
            " was begun.",
            "Read Git's words; correct the project's workspace (Goals and projects, Workspace), or"
            " the repository itself; then run the agent again.",
        ),
        _row(
            Code.WORKSPACE_BUSY,
            "Work tree in use",
            "Another run, or a removal, is still at work in the issue's work tree.",
            "Wait until it is over, then run the agent again.",
            meanwhile=AGAIN,
            transient=True,
        ),
        _row(
            Code.SETUP_FAILED,
            "Set-up failed",
            "The project's set-up command did not end well in the new work tree, so the agent was"
            " not started.",
            "Read its output in the run's log; correct the command in the project's workspace. It"
            " is run again with the next run.",
        ),
        _row(
            Code.ISOLATION_FAILED,
            "No isolation",
            "The agent is set to work isolated (bubblewrap), which this machine does not do, so it"
            " was not started.",
            "Install bubblewrap, allow user namespaces (docs/adapters.md, Isolation), or choose no"
            " isolation in the agent's configuration.",
        ),
        _row(
            Code.CANCELLED,
            "Cancelled",
            "Somebody stopped the run.",
            "Run the agent again when you want the work to go on.",
        ),
        _row(
            Code.LOST,
            "Worker lost",
            "The process that carried the run died or was shut down.",
            "Look at what the run may have done already, then run the agent again.",
            meanwhile=AGAIN,
        ),
        _row(
            Code.BUDGET,
            "Budget reached",
            "A budget does not allow another model call.",
            "Raise the budget or wait for its next period, then choose “Try again”: a higher"
            " limit alone does not start it. A model whose price nobody knows needs one,"
            " on the page Costs, Prices.",
            meanwhile="Nothing: it starts by itself when the budget has room. A higher limit makes"
            " some at once.",
        ),
        _row(
            Code.INTERNAL,
            "Fault of Paperclip",
            "Something inside Paperclip went wrong; it is in the server's log with the run's id.",
            "Run the agent again; report the fault if it comes back.",
        ),
        _row(
            "issue_closed",
            "No longer needed",
            "The issue was finished or cancelled before the run began.",
            "Nothing to do.",
        ),
        _row(
            "issue_archived",
            "No longer needed",
            "The issue was archived before the run began.",
            "Nothing to do.",
        ),
        _row(
            "issue_reassigned",
            "Not its issue any more",
            "The issue was given to somebody else before the run began.",
            "Nothing to do.",
        ),
        _row(
            "issue_in_backlog",
            "Put back",
            "The issue was put back into the backlog before the run began.",
            "Move the issue to “to do” when its time comes.",
        ),
        _row(
            "checkout_conflict",
            "Somebody else has it",
            "Another run or agent holds the issue.",
            "Nothing: the agent is woken again when the issue changes.",
        ),
        _row(
            "agent_terminated",
            "Agent terminated",
            "The agent was terminated.",
            "Assign the issue to another agent.",
        ),
    )
}

# The places where a remedy is carried out, for the buttons beside a failure: configuration,
# secrets, connections, budgets, prices, agent or log. "Try again" is offered with every failure.
PLACES: dict[str, tuple[str, ...]] = {
    Code.CONFIG_INVALID: ("configuration",),
    Code.NOT_INSTALLED: ("configuration",),
    Code.AUTH_FAILED: ("secrets", "configuration"),
    Code.MODEL_NOT_FOUND: ("configuration",),
    Code.BAD_REQUEST: ("log", "configuration"),
    Code.CONTEXT_TOO_LONG: ("configuration",),
    Code.QUOTA_EXHAUSTED: ("connections", "agent"),
    Code.RATE_LIMITED: ("connections", "configuration"),
    Code.PROVIDER_OVERLOADED: ("connections", "log"),
    Code.CONNECT_FAILED: ("configuration", "connections"),
    Code.ADDRESS_REFUSED: ("configuration",),
    Code.TRUNCATED_OUTPUT: ("configuration",),
    Code.REFUSED: ("log",),
    Code.TIMED_OUT: ("configuration", "log"),
    Code.IDLE: ("log", "configuration"),
    Code.OUTPUT_LIMIT: ("configuration", "log"),
    Code.TURN_LIMIT: ("configuration", "log"),
    Code.LOOP: ("agent", "log"),
    Code.SIMULATED: ("configuration",),
    Code.WORKSPACE_FAILED: ("log",),
    Code.WORKSPACE_BUSY: ("log",),
    Code.SETUP_FAILED: ("log",),
    Code.ISOLATION_FAILED: ("configuration",),
    Code.BUDGET: ("budgets", "prices"),
}

UNKNOWN = Outcome("", "Failed", "The run did not succeed.", "Read the run's log.")


def of(code: str) -> Outcome:
    """The row of a code; a code from a newer version gets a general one."""
    return TABLE.get(code, UNKNOWN)


def title(code: str, status: str) -> str:
    """What came of a run, in the words of the failure box; the status where no code says more."""
    return TABLE[code].title if code in TABLE else format.label(status)


def advice(code: str, *, repeats: bool) -> str:
    """What people can do about a failure. `repeats`: another attempt is queued or going on."""
    row = of(code)
    return (row.meanwhile if repeats else "") or row.remedy


def places(code: str, *, connected: bool = True) -> tuple[str, ...]:
    """Where people go to put this failure right; the log when there is nothing better.
    `connected`: the agent reaches its provider by a connection; nobody else is sent there."""
    found = [place for place in PLACES.get(code, ()) if connected or place != "connections"]
    return tuple(found) or ("log",)


def retry_in(
    code: str,
    *,
    attempt: int,
    retry_after: float | None = None,
    rng: random.Random | None = None,
) -> float | None:
    """Seconds until the next attempt after a failure of attempt number `attempt`, None for never.

    A provider's own wish (`retry_after`, also the reset time of a quota) goes before the table.
    """
    row = of(code)
    at_reset = code == Code.QUOTA_EXHAUSTED and retry_after is not None
    if not (row.transient or at_reset) or attempt > row.retries:
        return None
    if retry_after is None:
        return RETRY_SECONDS[attempt - 1] * (1 + (rng or random).uniform(0, JITTER))
    if at_reset:
        retry_after = min(retry_after, LONGEST_QUOTA_SECONDS)
    elif retry_after > LONGEST_WAIT_SECONDS:
        return None
    return spread(retry_after, rng=rng)


def spread(seconds: float, *, rng: random.Random | None = None) -> float:
    """`seconds`, at least one, and up to a fifth more, so that not all come back at once."""
    seconds = max(1.0, seconds)
    return seconds + (rng or random).uniform(0, min(seconds * JITTER, LONGEST_JITTER_SECONDS))
