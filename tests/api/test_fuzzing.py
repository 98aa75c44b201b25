"""The API against its own description: made-up calls of every operation, as every caller.

No server error, no answer that the description does not know. `make fuzz` sends many more.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from companies.models import User
from tests.api import fuzzing
from tests.api.conftest import Caller
from tests.api.test_matrix import callers, story, undone  # noqa: F401

pytestmark = [pytest.mark.django_db, pytest.mark.timeout(600)]
WORKFLOWS = int(os.environ.get("PAPERCLIP_FUZZ_WORKFLOWS", "3"))
STEPS = 12
EXAMPLES = int(os.environ.get("PAPERCLIP_FUZZ_EXAMPLES", "6"))


@pytest.fixture
def operations(db: None) -> list[str]:
    return list(fuzzing.operations())


def test_made_up_calls_get_the_answers_that_are_described(
    operations: list[str],
    story: dict[str, str],  # noqa: F811
    callers: dict[str, Caller],  # noqa: F811
    olga: User,
    subtests: pytest.Subtests,
) -> None:
    tokens = [caller.token for caller in callers.values()]
    objects = {**story, "olga": str(olga.id)}
    for label in operations:
        with subtests.test(label):
            fuzzing.bombard(label, story=objects, tokens=tokens, examples=EXAMPLES, around=undone)


@pytest.mark.parametrize("who", ["owner", "agent", "run"])
def test_what_was_made_can_be_gone_on_with(
    who: str,
    story: dict[str, str],  # noqa: F811
    callers: dict[str, Caller],  # noqa: F811
    olga: User,
) -> None:
    """Along the links of the description, as a client that follows them."""
    objects = {**story, "olga": str(olga.id)}

    with undone():
        statuses = Counter(
            fuzzing.go_on(story=objects, token=callers[who].token, workflows=WORKFLOWS, steps=STEPS)
        )

    good = sum(count for status, count in statuses.items() if status.startswith("2"))
    assert good, statuses
