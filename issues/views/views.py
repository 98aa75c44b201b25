"""Lists under a name: kept, shared, removed."""

from __future__ import annotations

import uuid

from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from companies import undo
from companies.views.door import PageRequest, page
from issues import saved_views
from issues.models import SavedView


def address(request: PageRequest, view: SavedView) -> str:
    tail = "board" if view.layout == SavedView.Layout.BOARD else ""
    return f"{request.base}/issues/{tail}?{view.query}"


@require_POST
@page()
def save(request: PageRequest) -> HttpResponse:
    """Keep the list as it is filtered now. Sharing with colleagues is an operator's."""
    view = saved_views.save(
        company=request.company,
        user=request.user,
        name=request.POST.get("name", ""),
        layout=request.POST.get("layout", ""),
        state=QueryDict(request.POST.get("query", "")[:600].lstrip("?")).dict(),
        is_shared=bool(request.POST.get("shared")) and request.may("operate"),
        now=request.now,
    )
    return redirect(address(request, view))


@require_POST
@page()
def remove(request: PageRequest, view_id: uuid.UUID) -> HttpResponse:
    view = saved_views.remove(company_id=request.company.id, user=request.user, view_id=view_id)
    undo.offer(
        request,
        f"The view “{view.name}” is gone.",
        f"{request.base}/issues/views/save",
        {
            "name": view.name,
            "layout": view.layout,
            "query": view.query,
            **({"shared": "1"} if view.is_shared else {}),
        },
    )
    return redirect(address(request, view))
