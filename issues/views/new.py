"""A new issue."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render

from companies.errors import Refusal
from companies.views.door import PageRequest, page
from issues import board, choices, thread
from issues.forms import NewIssueForm
from issues.models import Issue


@page("operate")
def new(request: PageRequest) -> HttpResponse:
    """The form; `?parent=ACM-3` makes a sub-issue, `?assignee=agent:<id>` and the like prefill."""
    parent = _parent(request, request.POST.get("parent") or request.GET.get("parent", ""))
    form = NewIssueForm(
        choices.load(request.company.id),
        request.POST or None,
        initial={
            name: request.GET[name] for name in request.GET if name in NewIssueForm.base_fields
        },
    )
    if request.method == "POST" and form.is_valid():
        try:
            issue = board.create(
                company=request.company,
                actor=request.principal.actor,
                now=request.now,
                parent=parent,
                **form.fields_of_issue(),
            )
        except Refusal as refusal:
            form.add_error(refusal.field if refusal.field in form.fields else None, refusal.message)
        else:
            messages.success(request, f"{issue.identifier} is on the board.")
            return redirect(f"{request.base}/issues/{issue.identifier}")
    return render(
        request,
        "issues/new.html",
        {"section": "new", "form": form, "parent": parent},
        status=422 if form.errors else 200,
    )


def _parent(request: PageRequest, identifier: str) -> Issue | None:
    if not identifier:
        return None
    return thread.find(company_id=request.company.id, identifier=identifier)
