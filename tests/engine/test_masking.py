"""What configurations show of `env` and `headers`."""

from __future__ import annotations

from agents.masking import masked, unmasked

REFERENCE = {"type": "secret_ref", "secret": "KEY"}


def test_every_value_that_may_be_a_secret_is_hidden_however_deep() -> None:
    config = {
        "command": "true",
        "env": {"A": "plain", "B": {"type": "plain", "value": "typed"}, "C": ["in a list"]},
        "steps": [{"headers": {"X-Key": "nested"}}, {"env": "odd"}, {"headers": None}],
    }
    assert masked(config) == {
        "command": "true",
        "env": {"A": "***", "B": "***", "C": "***"},
        "steps": [{"headers": {"X-Key": "***"}}, {"env": "***"}, {"headers": None}],
    }


def test_a_reference_says_nothing_and_is_shown() -> None:
    assert masked({"env": {"A": REFERENCE}}) == {"env": {"A": REFERENCE}}
    smuggled = REFERENCE | {"value": "plain"}
    assert masked({"env": {"A": smuggled}}) == {"env": {"A": "***"}}


def test_what_was_seen_masked_is_kept_when_it_is_sent_back() -> None:
    known = {"env": {"A": "one", "B": "two"}, "headers": {"X": "three"}}
    sent = masked(known) | {"command": "false"}
    sent["env"]["B"] = "new"
    assert unmasked(sent, known) == {
        "command": "false",
        "env": {"A": "one", "B": "new"},
        "headers": {"X": "three"},
    }
