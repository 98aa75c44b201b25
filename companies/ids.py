"""Time-ordered identifiers: UUID version 7, so that primary keys insert at the end of the index."""

from __future__ import annotations

import uuid
from datetime import datetime

from uuid_utils.compat import uuid7


def new_id() -> uuid.UUID:
    """A fresh UUIDv7 as the standard library's type."""
    return uuid7()


def first_id_of(moment: datetime) -> uuid.UUID:
    """The least id that is made at `moment` or after it (RFC 9562, section 5.7)."""
    return uuid.UUID(int=int(moment.timestamp() * 1000) << 80)
