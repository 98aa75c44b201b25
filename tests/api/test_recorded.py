"""Answers keep the names that clients of the protocol know (`recorded.json`: call → keys)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.api.contract import description

RECORDED: dict[str, list[str]] = json.loads(
    Path(__file__).with_name("recorded.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("call", RECORDED)
def test_an_answer_has_the_names_that_clients_know(call: str) -> None:
    method, path = call.split()
    schema = description()
    responses = schema["paths"][path][method.lower()]["responses"]
    (good,) = (answer for code, answer in responses.items() if code.startswith("2"))
    (name,) = set(re.findall(r"schemas/(\w+)", json.dumps(good["content"])))

    described = schema["components"]["schemas"][name]["properties"]

    assert set(RECORDED[call]) <= described.keys()
