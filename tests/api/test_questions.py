"""Questions to people: what is accepted is shown, what nobody could read is refused."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from companies.models import Company, User
from issues.models import Comment, Interaction, Issue
from tests.api.conftest import Caller

PATH = "/api/issues/ACM-1/interactions"
SHAPES: dict[str, Any] = {
    "version": 1,
    "questions": [
        {
            "id": "shape",
            "prompt": "Which shape?",
            "selectionMode": "single",
            "options": [{"id": "r", "label": "Round"}, {"id": "s", "label": "Square"}],
        },
        {"id": "colour", "prompt": "Which colour?", "options": ["Red", "Blue"]},
    ],
}


def ask(caller: Caller, payload: Any, kind: str = "ask_user_questions", **more: Any) -> Any:
    return caller.send("POST", PATH, {"kind": kind, "payload": payload, **more})


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        ({}, "payload.question"),
        ({"question": "  "}, "payload.question"),
        ({"question": 7}, "payload.question"),
        ({"question": "?", "options": "Red"}, "payload.options"),
        ({"question": "?", "options": ["a"] * 11}, "payload.options"),
        ({"question": "?", "options": [{"id": "a"}]}, "payload.options.0.label"),
        ({"question": "x" * 4_001}, "payload.question"),
        ({"questions": "x"}, "payload.questions"),
        ({"questions": []}, "payload.questions"),
        ({"questions": [1]}, "payload.questions.0"),
        ({"questions": ["Plain?"]}, "payload.questions.0"),
        ({"questions": [{"text": "KeyText?"}]}, "payload.questions.0.prompt"),
        ({"questions": [{"prompt": "a"}, {"prompt": ""}]}, "payload.questions.1.prompt"),
        ({"questions": [{"prompt": "a", "selectionMode": "all"}]},
         "payload.questions.0.selectionMode"),
        ({"questions": [{"id": "a", "prompt": "a"}] * 2}, "payload.questions"),
        ({"questions": [{"prompt": "a"}] * 2_000}, "payload.questions"),
    ],
)  # fmt: skip
def test_a_question_that_nobody_could_read_is_refused(
    as_run: Caller, payload: dict[str, Any], path: str
) -> None:
    refused = ask(as_run, payload)

    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_payload")
    assert refused.json()["details"]["issues"][0]["path"] == path.split(".")
    assert not Interaction.objects.exists()


@pytest.mark.parametrize("payload", [{}, {"prompt": ""}, {"prompt": None, "title": "T"}])
def test_a_confirmation_says_what_it_confirms(as_run: Caller, payload: dict[str, Any]) -> None:
    refused = ask(as_run, payload, "request_confirmation")

    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_payload")
    assert refused.json()["details"]["issues"][0]["path"] == ["payload", "prompt"]


def test_all_that_is_asked_is_shown(as_run: Caller, olga: User, acme: Company) -> None:
    assert ask(as_run, SHAPES, title="The anvil", summary="Two things").status_code == 201
    only = {"questions": [{"prompt": "How many?", "options": ["Twelve", "Thirteen"]}]}
    assert ask(as_run, only).status_code == 201
    tasks = {"tasks": [{"clientKey": "iron", "title": "Buy iron"}]}
    assert ask(as_run, tasks, "suggest_tasks").status_code == 201

    client = Client()
    client.force_login(olga)
    page = client.get("/c/ACM/issues/ACM-1").content.decode()

    for words in (
        "The anvil", "Two things", "Which shape?", "Round / Square", "Which colour?", "Red / Blue",
        "How many?", 'value="Twelve"', 'value="Thirteen"', "Buy iron",
    ):  # fmt: skip
        assert words in page, words


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"colour": "red"}, "Which colour?: red"),
        ({"shape": ["r"], "colour": {"optionIds": ["Red"]}},
         "Which shape?: Round\nWhich colour?: Red"),
        ([{"questionId": "shape", "optionIds": ["s"]}], "Which shape?: Square"),
        ([{"questionId": "shape", "optionIds": ["s"], "otherText": "or oval"}],
         "Which shape?: Square, or oval"),
        ({"size": "large"}, "size: large"),
        (["Round"], "Round"),
    ],
)  # fmt: skip
def test_answers_come_as_a_list_or_an_object(
    as_run: Caller, as_olga: Caller, answers: Any, words: str
) -> None:
    asked = ask(as_run, SHAPES).json()

    answered = as_olga.send("POST", f"{PATH}/{asked['id']}/respond", {"answers": answers})

    assert answered.status_code == 200, answered.content
    assert answered.json()["status"] == "answered"
    assert Comment.objects.get().body.endswith(f"\n\n{words}")
    assert Interaction.objects.get().response == {"answers": answers}


@pytest.mark.parametrize(
    "answers",
    [
        *([None], [[]], [{}], [{"questionId": "shape", "optionIds": []}], [], ["x"] * 51),
        *({"shape": None}, {"shape": [1]}, {"shape": " "}, {}),
    ],
)
def test_an_answer_that_says_nothing_is_refused(
    as_run: Caller, as_olga: Caller, answers: Any
) -> None:
    asked = ask(as_run, SHAPES).json()

    refused = as_olga.send("POST", f"{PATH}/{asked['id']}/respond", {"answers": answers})

    assert refused.status_code == 400, refused.content
    assert refused.json()["details"]["issues"][0]["path"][0].startswith("answer")
    assert Interaction.objects.get().status == "pending"
    assert not Comment.objects.exists()


def test_the_issue_asks_nothing_by_a_refusal(as_run: Caller, issue: Issue) -> None:
    Issue.objects.filter(id=issue.id).update(status="in_progress")
    ask(as_run, {})
    issue.refresh_from_db()
    assert issue.status == "in_progress"
