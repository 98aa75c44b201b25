"""Where the database is, for code that connects without Django."""

from django.conf import settings
from django.db import connection
from psycopg import pq
from psycopg.conninfo import make_conninfo

# What libpq understands; Django's own options stand beside them in the settings.
_KEYWORDS = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}


def conninfo(*, direct: bool = False) -> str:
    """Returns the address of Django's database; in tests that is the test database.

    `direct` goes past a pooler, which keeps no LISTEN and no lock of a session.
    """
    if direct and settings.DATABASE_DIRECT_URL != settings.DATABASE_URL:
        return str(settings.DIRECT_DSN)
    given = connection.get_connection_params()
    return make_conninfo(**{name: value for name, value in given.items() if name in _KEYWORDS})
