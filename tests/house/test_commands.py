"""Commands that people type where they have mistaken the data folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import ProgrammingError, connection

from paperclip.management import database

COMMANDS = (
    ["operator_key", "--email", "olga@example.com"],
    ["sign_in_link", "--email", "olga@example.com"],
    ["reset_second_factor", "--email", "olga@example.com"],
    ["rotate_keys"],
    ["demo"],
    ["doctor"],
)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_folder_without_a_database_is_named_and_stays_empty(
    words: list[str], tmp_path: Path, settings: Any
) -> None:
    settings.DATABASE_URL = ""
    settings.DATA_DIR, settings.PG_DIR = tmp_path, tmp_path / "pg"
    with pytest.raises(CommandError, match="There is no database in") as no:
        call_command(*words)
    assert str(tmp_path) in str(no.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.django_db
def test_a_database_that_was_never_set_up_is_named(settings: Any) -> None:
    settings.DATABASE_URL = "given"
    with (
        pytest.raises(CommandError, match="not set up yet"),
        database.present(),
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT 1 FROM companies_nothing")


@pytest.mark.django_db
def test_another_fault_of_a_statement_is_not_taken_for_that(settings: Any) -> None:
    settings.DATABASE_URL = "given"
    with pytest.raises(ProgrammingError), database.present(), connection.cursor() as cursor:
        cursor.execute("SELECT nothing FROM companies_company")
