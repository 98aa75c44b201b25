"""The embedded PostgreSQL."""

import pytest
from django.db import connection


@pytest.mark.django_db
def test_the_database_answers() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchone() == (1,)
