"""Time-ordered identifiers: UUID version 7, so that primary keys insert at the end of the index."""

from __future__ import annotations

import uuid

from uuid_utils.compat import uuid7


def new_id() -> uuid.UUID:
    """A fresh UUIDv7 as the standard library's type."""
    return uuid7()
