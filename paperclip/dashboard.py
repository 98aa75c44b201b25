"""The company's home and what the frame counts: the one place that looks at all floors."""

from __future__ import annotations

from companies.models import Company


def badges(company: Company) -> dict[str, int]:
    return {"needs_you": 0, "running": 0}
