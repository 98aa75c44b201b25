"""A project's folder is where agents may write: only an owner names one, also over the API."""

from __future__ import annotations

import pytest

from companies.models import Company, Project, User
from tests import factories
from tests.api.conftest import operator

pytestmark = pytest.mark.django_db


def test_an_operator_names_no_folder_and_an_owner_does(
    acme: Company, olga: User, otto: User
) -> None:
    project = factories.project(acme)
    new, known = f"/api/companies/{acme.id}/projects", f"/api/projects/{project.id}"
    named = {"name": "Barn", "workspace": "/srv/barn"}

    assert operator(otto).send("POST", new, named).status_code == 403
    assert operator(otto).send("PATCH", known, {"workspace": "/srv/barn"}).status_code == 403
    assert operator(otto).send("PATCH", known, {"name": "Shed"}).status_code == 200
    assert operator(olga).send("POST", new, named).status_code == 201
    assert operator(olga).send("PATCH", known, {"workspace": "/srv/barn"}).status_code == 200

    project.refresh_from_db()
    assert project.workspace == "/srv/barn"
    assert Project.objects.filter(workspace="/srv/barn").count() == 2
