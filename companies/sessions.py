"""Sessions in the database, looked up by keys that could be ours.

A cookie may hold anything, also what the database cannot be asked about; that is nobody's session.
"""

from __future__ import annotations

from django.contrib.sessions.backends import db


class SessionStore(db.SessionStore):
    """Django's own store; a key that it could not have made starts an empty session."""

    def _validate_session_key(self, key: str | None) -> bool:
        return key is not None and len(key) >= 8 and key.isascii() and key.isalnum()
