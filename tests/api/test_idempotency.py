"""A POST that is sent twice."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection, connections

from agents.models import Agent, AgentKey
from companies.models import Company, IdempotencyRecord
from issues import board
from issues.models import Issue
from tests.api.conftest import Caller


def create(caller: Caller, company: Company, key: str, title: str = "Forge") -> Any:
    path = f"/api/companies/{company.id}/issues"
    return caller.send("POST", path, {"title": title}, Idempotency_Key=key)


def test_the_second_one_gets_the_first_ones_answer(as_olga: Caller, acme: Company) -> None:
    first, second = create(as_olga, acme, "a"), create(as_olga, acme, "a")

    assert first.status_code == second.status_code == 201
    assert first.content == second.content
    assert "Idempotent-Replayed" not in first.headers
    assert second["Idempotent-Replayed"] == "true"
    assert Issue.objects.count() == 1


def test_the_same_key_for_another_body_is_422(as_olga: Caller, acme: Company) -> None:
    create(as_olga, acme, "a")

    refused = create(as_olga, acme, "a", title="Something else")

    assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_key_reused")


def test_keys_of_two_callers_do_not_meet(as_olga: Caller, as_otto: Caller, acme: Company) -> None:
    create(as_olga, acme, "a")

    assert "Idempotent-Replayed" not in create(as_otto, acme, "a").headers
    assert Issue.objects.count() == 2


def test_a_refusal_is_not_kept(as_olga: Caller, acme: Company) -> None:
    assert create(as_olga, acme, "a", title="").status_code == 400

    assert create(as_olga, acme, "a").status_code == 201


def test_a_failure_in_the_middle_leaves_neither_change_nor_answer(
    as_olga: Caller, acme: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = board.create

    def half(**fields: Any) -> None:
        real(**fields)
        raise RuntimeError("the power went out")

    with monkeypatch.context() as patch:
        patch.setattr(board, "create", half)
        assert create(as_olga, acme, "a").status_code == 500
    assert not Issue.objects.exists()
    assert not IdempotencyRecord.objects.exists()

    assert create(as_olga, acme, "a").status_code == 201


def test_a_key_that_is_shown_again_does_not_lie_open_meanwhile(
    as_olga: Caller, acme: Company, ada: Agent, settings: Any
) -> None:
    """Of keys the database holds hashes; a copy of it must give nobody a way in."""

    def new_key() -> Any:
        path = f"/api/agents/{ada.id}/keys"
        return as_olga.send("POST", path, {"name": "laptop"}, Idempotency_Key="a")

    first = new_key()
    kept = bytes(IdempotencyRecord.objects.get().body or b"")

    assert first.json()["token"].encode() not in kept
    assert new_key().json() == first.json()
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "new", [settings.SECRET_KEY]
    assert new_key().json() == first.json()
    settings.SECRET_KEY_FALLBACKS = []
    lost = new_key()
    assert (lost.status_code, lost.json()["code"]) == (409, "idempotency_answer_lost")
    assert AgentKey.objects.count() == 1


@pytest.mark.parametrize("key", ["", " ", "x" * 201])
def test_a_key_has_a_sensible_length(key: str, as_olga: Caller, acme: Company) -> None:
    assert create(as_olga, acme, key).status_code == 400


@pytest.mark.django_db(transaction=True)
def test_while_the_first_one_runs_the_second_one_waits_outside(
    as_olga: Caller, acme: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, go_on = threading.Event(), threading.Event()
    real = board.create

    def slow(**fields: Any) -> Issue:
        started.set()
        assert go_on.wait(10)
        return real(**fields)

    monkeypatch.setattr(board, "create", slow)
    answers: list[int] = []

    def first() -> None:
        try:
            answers.append(create(as_olga, acme, "a").status_code)
        finally:
            connections.close_all()

    thread = threading.Thread(target=first)
    thread.start()
    assert started.wait(10)
    second = create(Caller(as_olga.token), acme, "a")
    go_on.set()
    thread.join(10)

    assert (second.status_code, second.json()["code"]) == (409, "idempotency_in_progress")
    assert second["Retry-After"] == "1"
    assert answers == [201]
    assert connection.in_atomic_block is False
