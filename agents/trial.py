"""Test a configuration before an agent works with it: a real call, explained line by line."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from agents import adapters, connections
from agents.adapters.base import Check
from companies import secrets
from companies.errors import Invalid
from companies.models import SecretRead

LIMIT_SECONDS = 45


def run(
    *,
    company_id: uuid.UUID,
    adapter_type: str,
    config: Mapping[str, Any],
    user_id: uuid.UUID | None = None,
    now: datetime,
) -> list[Check]:
    """The adapter's own checks with the company's secrets. Raises Invalid for a configuration
    that cannot be used; `details["errors"]` says which fields."""
    try:
        stored = adapters.validate(adapter_type, config)
        stored = connections.spelled_out(company_id=company_id, config=stored)
        names = adapters.secret_names(adapter_type, stored)
    except adapters.ConfigError as error:
        raise Invalid(
            "adapter_config_invalid",
            str(error),
            field="adapter_config",
            details={"errors": error.errors},
        ) from error
    reader = secrets.Reader(SecretRead.Purpose.TEST, user_id=user_id)
    known = secrets.reveal(company_id=company_id, names=names, reader=reader, now=now)
    named = str(stored.get("apiKeyEnv", ""))
    if named and named in os.environ:
        known[named] = os.environ[named]
    return asyncio.run(_checks(adapter_type, stored, known))


async def _checks(
    adapter_type: str, stored: Mapping[str, Any], known: Mapping[str, str]
) -> list[Check]:
    # A fresh instance: clients belong to the event loop that made them, and this one ends here.
    adapter = type(adapters.get(adapter_type))()
    parsed = adapter.Config.model_validate(dict(stored))
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            return await adapter.test(parsed, known)
    except TimeoutError:
        return [Check("Answer", False, f"There was no answer within {LIMIT_SECONDS} seconds.")]
    finally:
        await adapter.aclose()
