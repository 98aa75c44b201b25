"""Where agents work on a project: its folder or repository, and the work trees there."""

from __future__ import annotations

import uuid

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render

from companies.errors import NotFound, Refusal
from companies.models import Project
from companies.views.door import PageRequest, page
from issues import workspaces, worktrees
from issues.workspace_forms import WorkspaceForm


@page(post="manage")
def workspace(request: PageRequest, project_id: uuid.UUID) -> HttpResponse:
    """The settings, which only an owner changes: what is set up is run on the server."""
    project = Project.objects.for_company(request.company.id).filter(id=project_id).first()
    if project is None:
        raise NotFound()
    given = workspaces.of(project)
    form = WorkspaceForm(project, given, request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            workspaces.save(
                project=project, actor=request.principal.actor, now=request.now, **form.wish()
            )
        except Refusal as refusal:
            form.complain(refusal)
        else:
            messages.success(request, "Saved.")
            return redirect(f"{request.base}/projects/{project.id}/workspace")
    context = {
        "section": "goals",
        "project": project,
        "form": form,
        "trees": worktrees.of_project(project),
    }
    return render(request, "issues/workspace.html", context, status=422 if form.errors else 200)
