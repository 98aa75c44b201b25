"""Addresses of agents and runs, below `/c/<prefix>/`."""

from django.urls import path

from agents.views import agent, connections, people, revisions, run, runs

urlpatterns = [
    path("agents/", people.agents),
    path("agents/new", people.hire),
    path("agents/test", people.test_configuration),
    path("agents/table.csv", people.table),
    path("agents/<slug:slug>/", agent.overview),
    path("agents/<slug:slug>/runs", agent.agent_runs),
    path("agents/<slug:slug>/configuration", agent.configuration),
    path("agents/<slug:slug>/keys", agent.keys),
    path("agents/<slug:slug>/pause", agent.pause),
    path("agents/<slug:slug>/resume", agent.resume),
    path("agents/<slug:slug>/wake", agent.wake),
    path("agents/<slug:slug>/clear-error", agent.clear_error),
    path("agents/<slug:slug>/terminate", agent.terminate),
    path("settings/connections/", connections.providers),
    path("settings/connections/<uuid:connection_id>", connections.provider),
    path("settings/connections/<uuid:connection_id>/switch", connections.switch),
    path("settings/connections/<uuid:connection_id>/release", connections.release),
    path("settings/connections/<uuid:connection_id>/check", connections.check),
    path("settings/connections/<uuid:connection_id>/delete", connections.delete),
    path("agents/<slug:slug>/revisions", revisions.revisions),
    path("agents/<slug:slug>/revisions/<uuid:revision_id>/restore", revisions.restore),
    path("runs/", runs.runs),
    path("runs/picture", runs.picture),
    path("runs/table.csv", runs.table),
    path("runs/<uuid:run_id>", run.run),
    path("runs/<uuid:run_id>/transcript", run.part),
    path("runs/<uuid:run_id>/step", run.step),
    path("runs/<uuid:run_id>/log.txt", run.download),
    path("runs/<uuid:run_id>/cancel", run.cancel),
    path("runs/<uuid:run_id>/retry", run.retry),
]
