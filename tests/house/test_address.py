"""Where the database is, for those who listen."""

from typing import Any

import psycopg
from django.db import connection

from paperclip.database.address import conninfo


def test_the_address_for_listening_is_one_that_postgresql_understands(db: None) -> None:
    """Django's own options stand beside the address, and must not get into it."""
    assert "server_side_binding" in connection.settings_dict["OPTIONS"]
    with psycopg.connect(conninfo()) as other:
        assert other.info.dbname == connection.settings_dict["NAME"]


def test_a_pooler_is_gone_around_for_listening(settings: Any) -> None:
    """Also where the pooler knows the database under another name."""
    settings.DATABASE_URL = "postgresql://pooler:6432/alias"
    settings.DATABASE_DIRECT_URL = "postgresql://db/real"
    settings.DIRECT_DSN = "host=db dbname=real"
    assert conninfo(direct=True) == "host=db dbname=real"
