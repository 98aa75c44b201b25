"""The page of the providers, without JavaScript."""

from __future__ import annotations

import pytest
from django.test import Client

from agents import breaker
from agents.adapters.base import Code
from agents.connection_models import ProviderConnection
from tests import factories

pytestmark = pytest.mark.django_db

URL = "/c/ACM/settings/connections/"
NEW = {"name": "Main", "kind": "openai", "base_url": "http://127.0.0.1:9/v1", "key_secret": ""}


@pytest.fixture
def signed():
    def signed_in(user) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return signed_in


def test_an_owner_adds_a_connection(signed, olga, acme):
    answer = signed(olga).post(URL, {**NEW, "requests_per_minute": "60"})
    row = ProviderConnection.objects.get()
    assert answer.status_code == 302
    assert answer["Location"] == f"{URL}#c-{row.pk}"
    assert (row.company, row.requests_per_minute) == (acme, 60)


def test_what_is_wrong_is_said_at_its_field_and_what_was_typed_stays(signed, olga, acme):
    answer = signed(olga).post(URL, {**NEW, "base_url": "ftp://nowhere"})
    assert answer.status_code == 422
    text = answer.content.decode()
    assert "must begin with http:// or https://" in text
    assert "ftp://nowhere" in text


def test_a_viewer_sees_how_they_do_and_changes_nothing(signed, vera, connect, hire):
    row = connect("Main", requests_per_minute=60)
    hire(row, name="Pia")
    vera_browses = signed(vera)
    text = vera_browses.get(URL).content.decode()
    assert "Main" in text
    assert "Pia" in text
    assert "0 of 60" in text
    assert "Switch off" not in text
    assert vera_browses.post(URL, NEW).status_code == 403
    for verb in ("switch", "release", "check", "delete"):
        assert vera_browses.post(f"{URL}{row.pk}/{verb}").status_code == 403


def test_to_a_stranger_it_does_not_exist(signed, oscar, globex, connect):
    row = connect()
    assert signed(oscar).get(URL).status_code == 404
    assert signed(oscar).get(f"/c/GLO/settings/connections/{row.pk}").status_code == 404


def test_a_spent_quota_is_shown_and_an_operator_releases_it(signed, otto, connect, now):
    row = connect()
    breaker.failed(connection_id=row.pk, code=Code.QUOTA_EXHAUSTED, message="Pay up.", now=now)
    otto_browses = signed(otto)
    text = otto_browses.get(URL).content.decode()
    assert "Quota used up" in text
    assert "Pay up." in text
    assert "Open providers" in otto_browses.get("/c/ACM/panels/needs").content.decode()
    otto_browses.post(f"{URL}{row.pk}/release")
    row.refresh_from_db()
    assert row.breaker == "closed"


def test_it_is_changed_switched_and_forgotten(signed, olga, connect):
    row = connect("Main")
    olga_browses = signed(olga)
    prefix = f"c{row.pk.hex[-8:]}"
    fields = {f"{prefix}-{name}": value for name, value in NEW.items()}
    olga_browses.post(f"{URL}{row.pk}", {**fields, f"{prefix}-max_concurrent_runs": "4"})
    olga_browses.post(f"{URL}{row.pk}/switch")
    row.refresh_from_db()
    assert (row.max_concurrent_runs, row.disabled_at is None) == (4, False)
    assert "Switched off" in olga_browses.get(URL).content.decode()
    olga_browses.post(f"{URL}{row.pk}/delete")
    assert not ProviderConnection.objects.exists()


def test_a_test_explains_itself_line_by_line(signed, olga, connect, mock_llm):
    row = connect(base_url=mock_llm.url)
    answer = signed(olga).post(f"{URL}{row.pk}/check", {"model": "mock"})
    assert "counts its tokens" in answer.content.decode()


def test_the_page_asks_the_same_few_questions_however_many_there_are(
    signed, olga, connect, hire, django_assert_max_num_queries
):
    for number in range(12):
        hire(connect(f"C{number}"), name=f"Pia {number}")
    client = signed(olga)
    with django_assert_max_num_queries(14):
        assert client.get(URL).status_code == 200


def test_a_run_on_the_fallback_wears_a_badge_in_lists_and_on_its_page(signed, vera, hire, connect):
    agent = hire(connect("Main"), connect("Spare"))
    told = {"fallback": {"connection": "Spare", "model": "m-2", "because": "rate_limited"}}
    run = factories.run(agent, status="succeeded", on_fallback=True, result=told)
    other = factories.run(agent, status="succeeded")
    browser = signed(vera)
    for path in (f"/c/ACM/agents/{agent.slug}/", f"/c/ACM/agents/{agent.slug}/runs"):
        assert browser.get(path).content.decode().count("ran on fallback") == 1
    page = browser.get(f"/c/ACM/runs/{run.pk}").content.decode()
    assert "ran on fallback" in page
    assert "Spare (m-2), because: too many requests." in page
    assert "on fallback" not in browser.get(f"/c/ACM/runs/{other.pk}").content.decode()
