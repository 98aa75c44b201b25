"""Sessions in the database, looked up by keys that could be ours.

A cookie may hold anything, also what the database cannot be asked about; that is nobody's session.
"""

from __future__ import annotations

from typing import Any

from django.contrib.sessions.backends import db
from django.db import connection
from django.utils import timezone

_LOAD = "SELECT session_data FROM django_session WHERE session_key = %s AND expire_date > %s"


class SessionStore(db.SessionStore):
    """Django's own store; a key that it could not have made starts an empty session."""

    def load(self) -> dict[str, Any]:
        """What the session holds, empty when there is none (any more). Every page asks this."""
        with connection.cursor() as cursor:
            cursor.execute(_LOAD, [self.session_key, timezone.now()])
            row = cursor.fetchone()
        if row is None:
            self._session_key = None
            return {}
        return self.decode(row[0])

    def _validate_session_key(self, key: str | None) -> bool:
        return key is not None and len(key) >= 8 and key.isascii() and key.isalnum()
