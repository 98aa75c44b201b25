"""Calls made up from the API's own description, sent as every kind of caller.

Half of the ids are real ones of the story, so that calls get past the door; what happens is undone
after each call. Everything is chosen by a fixed seed. `test_fuzzing.py` runs it.
"""

from __future__ import annotations

import functools
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import requests
import schemathesis
from django.test import Client
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test
from schemathesis import Case, GenerationMode, Response
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi import checks

from companies import wire
from paperclip.api import api

CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]
# A word in the name of a parameter, and the object of the story that it may stand for.
STORY = {
    "company": "company", "agent": "agent", "reports": "agent", "issue": "issue", "task": "issue",
    "parent": "issue", "run": "run", "goal": "goal", "project": "project", "comment": "comment",
    "after": "comment", "interaction": "question", "approval": "approval", "product": "product",
    "label": "label", "connection": "connection", "incident": "incident", "login": "login",
    "token": "secret", "adapter": "adapter", "user": "olga",
}  # fmt: skip


@functools.cache
def loaded() -> schemathesis.BaseSchema:
    config = SchemathesisConfig()
    config.projects.default.generation.update(with_security_parameters=False)
    return schemathesis.openapi.from_dict(
        json.loads(wire.dumps(api.get_openapi_schema(path_prefix="/api"))), config=config
    )


def call(case: Case, token: str) -> Response:
    """Send a made-up call to the API in this process, inside of the test's transaction."""
    parts = case.as_transport_kwargs(base_url="http://testserver")
    request = requests.Request(
        **{name: value for name, value in parts.items() if name in REQUEST_PARTS}
    ).prepare()
    headers = {**request.headers, **({"Authorization": f"Bearer {token}"} if token else {})}
    address = urlsplit(str(request.url))
    response = Client(raise_request_exception=False).generic(
        str(request.method),
        f"{address.path}?{address.query}" if address.query else address.path,
        data=request.body or b"",
        content_type=headers.pop("Content-Type", "application/octet-stream"),
        headers={name: str(value) for name, value in headers.items()},
    )
    return Response(
        status_code=response.status_code,
        headers={name.lower(): [value] for name, value in response.headers.items()},
        content=response.content,
        request=request,
        elapsed=0.0,
        verify=False,
    )


REQUEST_PARTS = frozenset({"method", "url", "params", "headers", "json", "data", "cookies"})


def operations() -> Iterator[str]:
    """Every operation, as `GET /api/…`."""
    for result in loaded().get_all_operations():
        yield result.ok().label


@functools.cache
def _operation(label: str) -> Any:
    return next(found.ok() for found in loaded().get_all_operations() if found.ok().label == label)


def bombard(
    label: str, *, story: dict[str, str], tokens: list[str], examples: int, around: Any
) -> None:
    """Send so many made-up calls of an operation, good and bad ones, and check each answer.

    `around` is entered for each call, to undo it.
    """
    operation = _operation(label)
    # That the instance is not ready is an answer, too.
    checked = CHECKS[1:] if label.endswith("/health/ready") else CHECKS
    good = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
    bad = operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        case=st.one_of(good, good, bad) if _can_be_wrong(operation) else good,
        token=st.sampled_from(tokens),
        real=st.floats(0, 1),
        seed=st.integers(0, 2**32),
    )
    def send(case: Case, token: str, real: float, seed: int) -> None:
        made = case.meta is None or case.meta.generation.mode.is_positive
        if made:
            fill(case, story, random.Random(seed), real)
        with around():
            case.validate_response(call(case, token), checks=checked)

    send()


def go_on(*, story: dict[str, str], token: str, workflows: int, steps: int) -> dict[str, int]:
    """Make things and go on with what was made, along the links of the description; returns how
    often each status came. Here nothing is undone between the steps of a workflow."""
    statuses: Counter[str] = Counter()
    met: set[str] = set()  # what may stand in an address because an answer named it

    class Workflow(loaded().as_state_machine()):  # type: ignore[misc]
        def call(self, case: Case, **kwargs: Any) -> Response:
            response = call(case, token)
            statuses[str(response.status_code)] += 1
            met.update(re.findall(r'"(?:id|issueId|key)":"([^"]+)"', response.text))
            return response

        def before_call(self, case: Case) -> None:
            if case.meta is not None and not case.meta.generation.mode.is_positive:
                return
            # What a link brought stays; the rest, such as the company, is the story's.
            for name, value in list((case.path_parameters or {}).items()):
                wanted = _object(name, case.path, story)
                if value not in met and wanted:
                    case.path_parameters[name] = wanted
            if isinstance(case.body, dict):
                _fill(case.body, case.path, story, random.Random(0), 1.0)

        def validate_response(self, response: Response, case: Case, **kwargs: Any) -> None:
            case.validate_response(response, checks=CHECKS[:-1])

    run_state_machine_as_test(
        Workflow,
        settings=settings(
            max_examples=workflows,
            stateful_step_count=steps,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
    return dict(statuses)


def _can_be_wrong(operation: Any) -> bool:
    """A call without parameters and body cannot be malformed."""
    return bool(operation.body or operation.query or operation.path_parameters)


def fill(case: Case, story: dict[str, str], chance: random.Random, real: float) -> None:
    """Put ids of the story where ids stand, `real` of them."""
    for name in list(case.path_parameters or {}):
        wanted = _object(name, case.path, story)
        if wanted and chance.random() < 0.5 + real / 2:
            case.path_parameters[name] = wanted
    for part in (case.query, case.body):
        if isinstance(part, dict):
            _fill(part, case.path, story, chance, real)


def _fill(part: Any, path: str, story: dict[str, str], chance: random.Random, real: float) -> None:
    for name, value in list(part.items()):
        wanted = _object(name, path, story)
        if isinstance(value, dict):
            _fill(value, path, story, chance, real)
        elif wanted and chance.random() < real:
            if isinstance(value, str):
                part[name] = wanted
            elif isinstance(value, list) and all(isinstance(one, str) for one in value):
                part[name] = [wanted]


def _object(name: str, path: str, story: dict[str, str]) -> str | None:
    plain = name.lower().replace("_id", "").removesuffix("ids").removesuffix("id")
    if plain == "key":
        return story["doc"] if "documents" in path else story["adas_key" if "agents" in path
                                                              else "olgas_key"]  # fmt: skip
    if "revision" in plain:
        return story["set_up" if "config-revisions" in path else "revision"]
    # "assigneeAgent" is an agent, "checkoutRun" a run.
    for word, thing in STORY.items():
        if plain.endswith(word):
            return story[thing]
    return None
