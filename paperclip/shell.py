"""What the frame around every page shows: theme, companies, badges. A context processor."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from companies.models import Company
from companies.views.sign_in import THEMES


def frame(request: HttpRequest) -> dict[str, Any]:
    """Context of the frame. The badges are asked for only by a template that shows them."""
    theme = request.COOKIES.get("theme", "auto")
    context: dict[str, Any] = {
        "theme": theme if theme in {name for name, _, _ in THEMES} else "auto",
        "themes": THEMES,
    }
    company = getattr(request, "company", None)
    if company is not None:
        from paperclip import dashboard

        known = [m.company for m in request.memberships]  # type: ignore[attr-defined]
        context |= {
            "company": company,
            # What changes from here on, the page learns from its stream of events.
            "read_at_ms": str(int(request.read_at.timestamp() * 1000)),  # type: ignore[attr-defined]
            "companies": [one for one in known if one.status != Company.Status.ARCHIVED],
            "archived": sum(one.status == Company.Status.ARCHIVED for one in known),
            "base": request.base,  # type: ignore[attr-defined]
            "role": request.role,  # type: ignore[attr-defined]
            "may_act": request.may("operate"),  # type: ignore[attr-defined]
            "may_manage": request.may("manage"),  # type: ignore[attr-defined]
            "badges": SimpleLazyObject(
                lambda: dashboard.badges(company, request.user)  # type: ignore[arg-type]
            ),
        }
    return context
