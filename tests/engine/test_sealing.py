"""A secret that is typed into a configuration does not stay there."""

from __future__ import annotations

import pytest

from agents import roster
from agents.adapters.fields import SECRET
from agents.models import Agent, AgentRevision
from companies import secrets
from companies.activity import SYSTEM
from companies.errors import Invalid
from companies.models import Company, Secret
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def acme() -> Company:
    return factories.company("Acme", "ACM")


def program(acme: Company, **env: object) -> Agent:
    config = {"command": "true", "env": env}
    return roster.hire(
        company=acme, actor=SYSTEM, name="Pia", adapter_type="process", adapter_config=config
    )


def opened(acme: Company, name: str) -> str:
    return secrets._open(Secret.objects.get(company=acme, name=name))


@pytest.mark.parametrize(
    "name",
    ["OPENAI_API_KEY", "api_key", "GITHUB_TOKEN", "DB_PASSWORD", "SECRET", "AWS_SECRET_ACCESS_KEY"],
)
def test_it_is_kept_with_the_companys_secrets(acme, name):
    pia = program(acme, **{name: "sk-1234567890", "LANG": "C"})

    pia.refresh_from_db()
    named = f"{name}.agent-{pia.number}"
    assert pia.adapter_config["env"] == {
        name: {"type": "secret_ref", "secret": named},
        "LANG": "C",
    }
    assert opened(acme, named) == "sk-1234567890"


@pytest.mark.parametrize("name", ["PATH", "KEYBOARD", "MONKEY", "TOKENIZERS_PARALLELISM", "TZ"])
def test_what_is_called_otherwise_stays(acme, name):
    pia = program(acme, **{name: "plain text"})

    assert pia.adapter_config["env"] == {name: "plain text"}
    assert not Secret.objects.exists()


def test_an_empty_value_and_a_named_one_stay(acme):
    reference = {"type": "secret_ref", "secret": "SHARED"}
    pia = program(acme, API_KEY="", OTHER_KEY=reference)

    assert pia.adapter_config["env"] == {"API_KEY": "", "OTHER_KEY": reference}
    assert not Secret.objects.exists()


def test_a_header_is_filled_when_it_is_sent(acme):
    ada = roster.hire(
        company=acme,
        actor=SYSTEM,
        name="Ada",
        adapter_type="http",
        adapter_config={
            "url": "https://example.com/hook",
            "headers": {
                "Authorization": "Bearer abcdefgh",
                "X-Api-Key": "{{secret:SHARED}}",
                "Accept": "text/plain",
            },
        },
    )

    headers = ada.adapter_config["headers"]
    (named,) = SECRET.findall(headers["Authorization"])
    assert opened(acme, named) == "Bearer abcdefgh"
    assert headers["X-Api-Key"] == "{{secret:SHARED}}"
    assert headers["Accept"] == "text/plain"


def test_a_new_value_is_a_new_version_and_no_revision_shows_one(acme):
    pia = program(acme, API_KEY="the-first-one")
    config = {**pia.adapter_config, "env": {"API_KEY": "the-second-one"}}
    roster.update(agent=pia, changes={"adapter_config": config}, actor=SYSTEM)

    secret = Secret.objects.get()
    assert secret.version == 2
    assert opened(acme, secret.name) == "the-second-one"
    shown = "".join(str(vars(one)) for one in AgentRevision.objects.all())
    assert "the-first-one" not in shown
    assert "the-second-one" not in shown


def test_agents_of_one_name_keep_their_own(acme):
    first, second = program(acme, API_KEY="of-the-first"), program(acme, API_KEY="of-the-second")

    assert opened(acme, f"API_KEY.agent-{first.number}") == "of-the-first"
    assert opened(acme, f"API_KEY.agent-{second.number}") == "of-the-second"


def test_a_value_that_is_too_large_is_refused_and_nobody_hired(acme):
    with pytest.raises(Invalid) as refused:
        program(acme, API_KEY="x" * 16_385)

    assert refused.value.field == "adapter_config"
    assert not Agent.objects.exists()
