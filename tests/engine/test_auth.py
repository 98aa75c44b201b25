"""Who stands behind a token, and from when on nobody does."""

from __future__ import annotations

from datetime import timedelta

import pytest

from agents import auth
from agents.models import Agent, AgentKey, HeartbeatRun
from companies import keys
from companies.models import Company, OperatorKey, User
from tests import factories

pytestmark = pytest.mark.django_db


def operator_key(user: User, **fields) -> str:
    minted = keys.mint(keys.OPERATOR)
    OperatorKey.objects.create(
        user=user, name="cli", lookup=minted.lookup, digest=minted.digest, **fields
    )
    return minted.token


def agent_key(agent: Agent, **fields) -> str:
    minted = keys.mint(keys.AGENT)
    AgentKey.objects.create(
        company_id=agent.company_id,
        agent=agent,
        name="cli",
        lookup=minted.lookup,
        digest=minted.digest,
        **fields,
    )
    return minted.token


def test_an_operators_key_is_the_person(olga):
    principal = auth.principal_for_token(operator_key(olga))
    assert principal is not None
    assert (principal.kind, principal.user_id) == ("user", olga.pk)


def test_an_agents_key_is_the_agent_in_its_company(ada):
    principal = auth.principal_for_token(agent_key(ada, scopes=["issues"]))
    assert principal is not None
    assert (principal.kind, principal.agent_id) == ("agent", ada.pk)
    assert (principal.company_id, principal.scopes) == (ada.company_id, {"issues"})


def test_a_runs_token_lives_as_long_as_the_run(ada, issue):
    run = factories.running(ada, issue)
    token = factories.run_token(run)
    principal = auth.principal_for_token(token)
    assert principal is not None
    assert (principal.kind, principal.run_id) == ("run", run.pk)
    assert principal.actor.run_id == run.pk
    HeartbeatRun.objects.update(status="cancelled", finished_at="2026-01-01T00:00Z")
    assert auth.principal_for_token(token) is None


@pytest.mark.parametrize("make", [operator_key, agent_key])
@pytest.mark.parametrize(
    "fields", [{"revoked_at": "2026-01-01T00:00Z"}, {"expires_at": "2026-01-01T00:00Z"}]
)
def test_a_revoked_or_expired_key_is_nobodys(olga, ada, make, fields):
    assert auth.principal_for_token(make(olga if make is operator_key else ada, **fields)) is None


def test_a_removed_person_is_a_stranger(olga):
    token = operator_key(olga)
    User.objects.update(is_active=False)
    assert auth.principal_for_token(token) is None


def test_a_terminated_agent_is_a_stranger(ada, issue):
    token = agent_key(ada)
    run_token = factories.run_token(factories.running(ada, issue))
    Agent.objects.update(status="terminated")
    assert auth.principal_for_token(token) is None
    assert auth.principal_for_token(run_token) is None


def test_an_archived_companys_agents_are_strangers(ada, acme):
    token = agent_key(ada)
    Company.objects.filter(pk=acme.pk).update(status="archived")
    assert auth.principal_for_token(token) is None


@pytest.mark.parametrize("token", ["", "x", "pcb_", "pcp_" + "a" * 62, "\x00", "🙂" * 100])
def test_what_is_no_token_is_nobodys(token):
    assert auth.principal_for_token(token) is None


def test_a_token_of_the_right_shape_that_nobody_has_is_nobodys(db):
    for prefix in (keys.OPERATOR, keys.AGENT, keys.RUN):
        assert auth.principal_for_token(keys.mint(prefix).token) is None


def test_a_key_with_anothers_lookup_is_nobodys(ada):
    agent_key(ada)
    AgentKey.objects.update(lookup=(minted := keys.mint(keys.AGENT)).lookup)
    assert auth.principal_for_token(minted.token) is None


def test_its_use_is_noted_once_a_minute(ada, now):
    token = agent_key(ada)
    for seconds in (0, 30, 50):
        auth.principal_for_token(token, now=now + timedelta(seconds=seconds))
    assert AgentKey.objects.get().last_used_at == now
    auth.principal_for_token(token, now=now + timedelta(seconds=61))
    assert AgentKey.objects.get().last_used_at == now + timedelta(seconds=61)
