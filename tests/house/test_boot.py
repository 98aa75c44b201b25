"""What a start does before anything serves."""

from datetime import UTC, datetime

import pytest
from django.db import connection
from django.test import Client

from companies.models import SignInLink, User
from paperclip import boot
from tests.house.instance import database_address

NOW = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)


@pytest.fixture
def own_address(settings: pytest.MonkeyPatch) -> None:
    """Lets the locks of a start go to the tests' own database."""
    settings.DIRECT_DSN = database_address()


@pytest.mark.django_db
def test_the_first_operator_gets_a_link_that_signs_them_in(client: Client) -> None:
    operator = boot.first_operator(NOW)

    user = User.objects.get()
    assert operator.email == user.email == "operator@localhost"
    assert user.is_superuser
    assert not user.has_usable_password()
    assert operator.link.startswith("http://127.0.0.1:8000/sign-in/")


@pytest.mark.django_db
def test_a_later_start_gives_the_same_operator_a_new_link_and_takes_back_the_old() -> None:
    first = boot.first_operator(NOW)
    second = boot.first_operator(NOW)

    assert first.link != second.link
    assert User.objects.count() == 1
    assert SignInLink.objects.count() == 1


@pytest.mark.django_db
def test_an_operator_with_a_password_needs_no_link(settings: pytest.MonkeyPatch) -> None:
    settings.ADMIN_EMAIL = "olga@example.com"
    settings.ADMIN_PASSWORD = "a long enough password"

    operator = boot.first_operator(NOW)

    assert operator == boot.Operator(email="olga@example.com", link="")
    assert User.objects.get().check_password("a long enough password")


@pytest.mark.django_db
def test_a_changed_password_is_not_set_back_by_the_environment(
    settings: pytest.MonkeyPatch,
) -> None:
    settings.ADMIN_EMAIL = "olga@example.com"
    settings.ADMIN_PASSWORD = "a long enough password"
    boot.first_operator(NOW)
    olga = User.objects.get()
    olga.set_password("changed in between")
    olga.save()

    boot.first_operator(NOW)

    assert User.objects.get().check_password("changed in between")


@pytest.mark.django_db
def test_a_database_that_a_newer_version_changed_is_refused(own_address: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO django_migrations (app, name, applied)"
            " VALUES ('agents', '9999_from_the_future', now())"
        )

    with pytest.raises(boot.BootError, match=r"newer version of Paperclip \(agents\.9999"):
        boot.prepare_database(NOW)
