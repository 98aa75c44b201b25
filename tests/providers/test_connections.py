"""Connections as people keep them, and how agents name them."""

from __future__ import annotations

import pytest

from agents import connections, providers, roster
from agents.connection_models import AgentFallback, ProviderConnection
from companies.activity import SYSTEM
from companies.errors import Conflict, Invalid
from companies.models import Activity

pytestmark = pytest.mark.django_db


def test_a_connection_is_made_with_its_bucket_and_its_activity(connect, acme):
    row = connect("Main", key_secret="KEY", requests_per_minute=60, tokens_per_minute=9000)
    assert (row.bucket.requests_left, row.bucket.tokens_left) == (60, 9000)
    assert Activity.objects.get(entity_id=row.pk).action == "connection.created"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"name": " "}, "name"),
        ({"base_url": "ftp://example.com"}, "base_url"),
        ({"base_url": "http://10.0.0.1/v1"}, "base_url"),
        ({"base_url": ""}, "base_url"),
        ({"key_secret": "NOT_THERE"}, "key_secret"),
        ({"requests_per_minute": 0}, "requests_per_minute"),
        ({"tokens_per_minute": -1}, "tokens_per_minute"),
        ({"max_concurrent_runs": 10**9}, "max_concurrent_runs"),
        ({"breaker": "closed"}, "breaker"),
    ],
)
def test_what_cannot_be_is_refused_at_its_field(acme, now, given, field):
    fields = {"name": "Main", "base_url": "http://127.0.0.1:9/v1", **given}
    with pytest.raises(Invalid) as refusal:
        connections.create(company=acme, kind="openai", actor=SYSTEM, now=now, **fields)
    assert refusal.value.field == field
    assert not ProviderConnection.objects.exists()


def test_a_name_is_taken_once_in_a_company(connect, globex):
    connect("Main")
    connect("Main", company=globex)
    with pytest.raises(Invalid) as refusal:
        connect("Main")
    assert refusal.value.code == "name_taken"


def test_a_change_needs_the_version_that_was_seen(connect, now):
    row = connect()
    connections.update(row=row, changes={"name": "Other"}, actor=SYSTEM, now=now, if_version=1)
    with pytest.raises(Conflict):
        connections.update(row=row, changes={"name": "Third"}, actor=SYSTEM, now=now, if_version=1)


def test_an_agent_names_its_connection_and_its_fallbacks(connect, hire):
    main, spare = connect("Main"), connect("Spare", kind="anthropic")
    agent = hire(main, spare)
    assert agent.connection == main
    assert [one.connection_id for one in AgentFallback.objects.filter(agent=agent)] == [spare.pk]
    agent = roster.update(
        agent=agent,
        changes={"adapter_config": {"baseUrl": "http://127.0.0.1:9/v1", "model": "m"}},
        actor=SYSTEM,
    )
    assert agent.connection is None
    assert not AgentFallback.objects.exists()


def test_it_cannot_name_another_companys(connect, hire, globex):
    theirs = connect("Theirs", company=globex)
    with pytest.raises(Invalid) as refusal:
        hire(theirs)
    assert list(refusal.value.details["errors"]) == ["connectionId"]
    with pytest.raises(Invalid) as refusal:
        hire(connect("Ours"), theirs)
    assert list(refusal.value.details["errors"]) == ["fallbacks.0.connectionId"]


@pytest.mark.parametrize(
    "config",
    [
        {"baseUrl": "http://127.0.0.1:9/v1"},
        {"apiKeySecret": "KEY"},
        {"fallbacks": [{"connectionId": "nonsense", "model": "m"}]},
        {"fallbacks": [{"model": "m"}]},
    ],
)
def test_a_configuration_that_contradicts_its_connection_is_refused(connect, hire, config):
    with pytest.raises(Invalid):
        hire(connect(), config=config)


def test_the_first_connection_must_speak_as_the_adapter_does(connect, acme):
    row = connect(kind="anthropic")
    with pytest.raises(Invalid):
        roster.hire(
            company=acme,
            actor=SYSTEM,
            name="Pia",
            adapter_type="openai",
            adapter_config={"connectionId": str(row.pk), "model": "m"},
        )


def test_one_that_is_in_use_is_not_deleted(connect, hire, now):
    main, spare, unused = connect("Main"), connect("Spare"), connect("Unused")
    hire(main, spare)
    for row in (main, spare):
        with pytest.raises(Conflict) as refusal:
            connections.delete(row=row, actor=SYSTEM, now=now)
        assert refusal.value.details["agents"] == ["Pia"]
    connections.delete(row=unused, actor=SYSTEM, now=now)
    assert ProviderConnection.objects.count() == 2


def test_routes_carry_the_keys_and_begin_where_the_run_was_claimed(connect, hire, acme, now):
    main, spare = connect("Main", key_secret="KEY"), connect("Spare", kind="anthropic")
    agent = hire(main, spare)

    def routes(start):
        found = providers.routes(
            company_id=acme.pk, config=agent.adapter_config, start=start, now=now
        )
        return [(one.name, one.kind, one.model, one.key, one.position) for one in found]

    assert routes(main.pk) == [
        ("Main", "openai", "mock-1", "sk-test-0001", 0),
        ("Spare", "anthropic", "mock-2", "", 1),
    ]
    assert routes(spare.pk) == [("Spare", "anthropic", "mock-2", "", 1)]
    connections.disable(row=main, actor=SYSTEM, now=now)
    assert routes(None) == [("Spare", "anthropic", "mock-2", "", 1)]


def test_a_check_really_asks_the_provider(connect, mock_llm, now):
    row = connect(base_url=mock_llm.url, key_secret="KEY")
    (check,) = connections.check(row=row, now=now)
    assert check.ok
    checks = connections.check(row=row, model="mock", now=now)
    assert [one.ok for one in checks] == [True, True]
    assert mock_llm.state.posts[0].headers["authorization"] == "Bearer sk-test-0001"


def test_a_check_of_a_silent_address_says_so(connect, now):
    (check,) = connections.check(row=connect(), now=now)
    assert not check.ok
    assert "127.0.0.1:9" in check.message
