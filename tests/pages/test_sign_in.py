"""Coming in and going out."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.test import Client

from companies import sign_in
from companies.models import Company, User
from tests import factories


def test_the_right_password_opens_the_first_company(
    client: Client, olga: User, acme: Company
) -> None:
    answer = client.post("/sign-in", {"email": "OLGA@example.com", "password": factories.PASSWORD})
    assert answer["Location"] == "/"
    assert client.get("/")["Location"] == "/c/ACM/"


def test_a_wrong_password_and_an_unknown_address_read_the_same(client: Client, olga: User) -> None:
    wrong = client.post("/sign-in", {"email": olga.email, "password": "guess"})
    unknown = client.post("/sign-in", {"email": "who@example.com", "password": "guess"})
    assert wrong.status_code == unknown.status_code == 422
    message = "This e-mail address and password do not go together."
    assert message in wrong.content.decode()
    assert message in unknown.content.decode()


def test_guessing_is_slowed_down(client: Client, olga: User) -> None:
    answers = [
        client.post("/sign-in", {"email": olga.email, "password": f"guess {n}"}) for n in range(25)
    ]
    assert answers[0].status_code == 422
    assert answers[-1].status_code == 429
    assert int(answers[-1]["Retry-After"]) > 0


def test_one_comes_back_to_the_page_one_wanted(client: Client, olga: User, acme: Company) -> None:
    answer = client.post(
        "/sign-in?next=/c/ACM/costs/", {"email": olga.email, "password": factories.PASSWORD}
    )
    assert answer["Location"] == "/c/ACM/costs/"


def test_no_link_leads_out_of_the_house(client: Client, olga: User) -> None:
    form = {"email": olga.email, "password": factories.PASSWORD, "next": "https://evil.example/"}
    assert client.post("/sign-in", form)["Location"] == "/"


def test_a_one_time_link_works_once(client: Client, olga: User, now: datetime) -> None:
    token = sign_in.make_link(user=olga, now=now)
    assert "Continue" in client.get(f"/sign-in/{token}").content.decode()
    assert client.post(f"/sign-in/{token}")["Location"] == "/"
    assert client.get("/").status_code == 302
    assert Client().post(f"/sign-in/{token}").status_code == 410


def test_looking_at_a_link_does_not_use_it_up(client: Client, olga: User, now: datetime) -> None:
    token = sign_in.make_link(user=olga, now=now)
    Client().get(f"/sign-in/{token}")
    assert client.post(f"/sign-in/{token}").status_code == 302


def test_signing_out_ends_the_session(olgas: Client) -> None:
    olgas.post("/sign-out")
    assert olgas.get("/c/ACM/")["Location"].startswith("/sign-in")


def test_somebody_without_a_company_founds_one(client: Client, db: None) -> None:
    client.force_login(factories.user("Nina"))
    assert client.get("/")["Location"] == "/companies/new"
    answer = client.post("/companies/new", {"name": "Nina's Nails", "prefix": "NAI"})
    assert answer["Location"] == "/c/NAI/"
    assert "First steps" in client.get("/c/NAI/").content.decode()


def test_a_taken_prefix_is_said_at_its_field(client: Client, acme: Company) -> None:
    client.force_login(factories.user("Nina"))
    answer = client.post("/companies/new", {"name": "Another", "prefix": "ACM"})
    assert answer.status_code == 422
    assert "ACM-1" in answer.content.decode()


def test_the_theme_is_remembered_and_set_by_the_server(client: Client, db: None) -> None:
    assert 'data-theme="auto"' in client.get("/sign-in").content.decode()
    client.post("/theme", {"theme": "dark", "next": "/sign-in"})
    assert 'data-theme="dark"' in client.get("/sign-in").content.decode()


def test_an_unknown_theme_changes_nothing(client: Client, db: None) -> None:
    client.post("/theme", {"theme": '"><script>'})
    assert 'data-theme="auto"' in client.get("/sign-in").content.decode()


def test_the_admin_has_no_door_of_its_own(client: Client, olga: User) -> None:
    asked = client.get("/admin/")
    assert asked["Location"] == "/admin/login/?next=/admin/"
    assert client.get(asked["Location"])["Location"] == "/sign-in?next=%2Fadmin%2F"
    guess = client.post("/admin/login/", {"username": olga.email, "password": factories.PASSWORD})
    assert guess.status_code == 302
    assert "_auth_user_id" not in client.session


def test_who_may_not_enter_the_admin_is_told_so(client: Client, olga: User) -> None:
    client.force_login(olga)
    assert client.get("/admin/login/?next=/admin/").status_code == 403


def test_a_cookie_that_no_database_can_hold_is_nobodys_session(client: Client, olga: User) -> None:
    headers = {"cookie": f'{settings.SESSION_COOKIE_NAME}="\\000abcdefghijkl"'}
    assert client.get("/sign-in", headers=headers).status_code == 200
    assert client.get("/", headers=headers)["Location"].startswith("/sign-in")


def test_a_company_that_no_database_can_hold_is_not_found(client: Client, olga: User) -> None:
    client.force_login(olga)
    assert client.get("/c/%00/").status_code == 404
