"""Addresses of the board, below `/c/<prefix>/`."""

from django.urls import path

from issues.views import (
    bulk,
    inbox,
    issue,
    lists,
    new,
    of_agent,
    results,
    undoing,
    views,
    work,
    workspace,
)

urlpatterns = [
    path("issues/", lists.issues),
    path("issues/board", lists.board),
    path("issues/new", new.new),
    path("issues/undo", undoing.take_back),
    path("issues/table.csv", lists.table),
    path("issues/bulk", bulk.change),
    path("issues/move", lists.move),
    path("issues/views/save", views.save),
    path("issues/views/<uuid:view_id>/remove", views.remove),
    path("inbox/", inbox.inbox),
    path("inbox/<uuid:ref>/aside", inbox.aside),
    path("inbox/<uuid:ref>/back", inbox.take_back),
    path("approvals/<uuid:approval_id>/decide", inbox.decide),
    path("agents/<slug:slug>/issues", of_agent.issues),
    path("issues/<str:identifier>", issue.issue),
    path("issues/<str:identifier>/why", issue.reasons),
    path("issues/<str:identifier>/peek", issue.peek),
    path("issues/<str:identifier>/edit", issue.edit),
    path("issues/<str:identifier>/comments", issue.comment),
    path("issues/<str:identifier>/questions/<uuid:interaction_id>", issue.answer),
    path("issues/<str:identifier>/wake", issue.wake),
    path("issues/<str:identifier>/review", inbox.review),
    path("issues/<str:identifier>/documents/<str:key>", results.document),
    path("issues/<str:identifier>/archive", issue.archive),
    path("issues/<str:identifier>/work", work.work),
    path("issues/<str:identifier>/work/files", work.files),
    path("issues/<str:identifier>/work/remove", work.remove),
    path("projects/<uuid:project_id>/workspace", workspace.workspace),
]
