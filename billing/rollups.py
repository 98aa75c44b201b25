"""The roll-up: costs by day, agent, project, provider and model, written with each booking.

Written in the ledger's own transaction and not by a job behind it, so that a page is exact at
once and there is no watermark that could pass over a booking that commits late.
"""

from __future__ import annotations

from datetime import UTC

from django.db import connection

from billing.models import CostEvent

_ADD = """
INSERT INTO billing_daycost AS day
    (company_id, day, agent_id, project_id, provider, model, spent_micros, events,
     unpriced_events, tokens, input_tokens, cached_tokens, output_tokens, last_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, 1, %s, %s, %s, %s, %s, %s)
ON CONFLICT (company_id, day, agent_id, project_id, provider, model) DO UPDATE
   SET spent_micros = day.spent_micros + excluded.spent_micros,
       events = day.events + 1,
       unpriced_events = day.unpriced_events + excluded.unpriced_events,
       tokens = day.tokens + excluded.tokens,
       input_tokens = day.input_tokens + excluded.input_tokens,
       cached_tokens = day.cached_tokens + excluded.cached_tokens,
       output_tokens = day.output_tokens + excluded.output_tokens,
       last_at = GREATEST(day.last_at, excluded.last_at)
"""


def add(event: CostEvent, *, tokens: int) -> None:
    """Count an event, in the transaction that writes it. `tokens` are those of token limits."""
    with connection.cursor() as cursor:
        cursor.execute(
            _ADD,
            [
                event.company_id,
                event.occurred_at.astimezone(UTC).date(),
                event.agent_id,
                event.project_id,
                event.provider,
                event.model,
                event.cost_micros or 0,
                int(event.cost_micros is None),
                tokens,
                event.input_tokens,
                event.cache_read_tokens,
                event.output_tokens,
                event.occurred_at,
            ],
        )
