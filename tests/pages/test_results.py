"""What came of an issue: its documents and work products, on its page."""

from __future__ import annotations

import pytest
from django.test import Client

from companies.activity import Actor
from issues import documents, marks
from issues.models import Document, Issue
from tests.pages.conftest import Scene
from tests.pages.test_bulk_and_board import text

PLAN = "# The plan\n\nFirst *one*, then the other. <script>alert(1)</script>"


@pytest.fixture
def issue(scene: Scene) -> Issue:
    return scene.running


def write(issue: Issue, scene: Scene, body: str = PLAN, **fields: object) -> Document:
    ada = Actor("agent", scene.ada.id, "Ada")
    written, _ = documents.put(
        issue=issue, key="plan", body=body, actor=ada, **{"title": "How", **fields}
    )
    return written


def test_a_document_is_named_on_the_issue_and_read_behind_it(
    olgas: Client, veras: Client, issue: Issue, scene: Scene
) -> None:
    address = f"/c/ACM/issues/{issue.identifier}"
    assert "Results" not in text(olgas.get(address))
    write(issue, scene)

    page = text(olgas.get(address))
    assert f'href="{address}/documents/plan">How</a>' in page
    assert "wrote the document" in page
    for browser in (olgas, veras):
        shown = text(browser.get(f"{address}/documents/plan"))
        assert "<em>one</em>" in shown
        assert "<script>alert" not in shown
        assert "Ada" in shown


def test_an_earlier_revision_is_shown_as_it_was(olgas: Client, issue: Issue, scene: Scene) -> None:
    first = write(issue, scene)
    write(issue, scene, "Quite another one.", change_summary="Shorter", if_version=first.revision)
    address = f"/c/ACM/issues/{issue.identifier}/documents/plan"

    newest, before = text(olgas.get(address)), text(olgas.get(f"{address}?revision=1"))
    assert "Quite another one." in newest
    assert "Shorter" in newest
    assert "as it was" not in newest
    assert "<em>one</em>" in before
    assert "as it was" in before


@pytest.mark.parametrize("revision", ["0", "2", "-1", "x", "9" * 30, "²", "%00"])
def test_a_revision_that_is_none_is_not_found(
    olgas: Client, issue: Issue, scene: Scene, revision: str
) -> None:
    write(issue, scene)
    address = f"/c/ACM/issues/{issue.identifier}/documents/plan"
    assert olgas.get(f"{address}?revision={revision}").status_code == 404


@pytest.mark.parametrize("key", ["none", "%00", "a" * 300, "..%2Fx"])
def test_a_document_that_is_none_is_not_found(olgas: Client, issue: Issue, key: str) -> None:
    assert olgas.get(f"/c/ACM/issues/{issue.identifier}/documents/{key}").status_code == 404


def test_nobody_reads_another_companys(oscars: Client, issue: Issue, scene: Scene) -> None:
    write(issue, scene)
    for prefix in ("ACM", "GLO"):
        path = f"/c/{prefix}/issues/{issue.identifier}/documents/plan"
        assert oscars.get(path).status_code == 404


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ('{"b": 1, "a": ["x"]}', "  &quot;b&quot;: 1,"),
        ("no JSON <b>", "no JSON &lt;b&gt;"),
        ("[" * 20_000, "[[[["),
    ],
)
def test_json_is_laid_out_and_what_is_none_is_shown_as_it_is(
    olgas: Client, issue: Issue, scene: Scene, body: str, shown: str
) -> None:
    write(issue, scene, body, format="json")
    assert shown in text(olgas.get(f"/c/ACM/issues/{issue.identifier}/documents/plan"))


@pytest.mark.parametrize(
    ("url", "leads"),
    [
        ("https://example.com/pull/1", True),
        ("javascript:alert(1)", False),
        ("//example.com/x", False),
        ("https://[", False),
        ("", False),
    ],
)
def test_a_work_product_leads_where_a_page_may_lead(
    olgas: Client, issue: Issue, scene: Scene, url: str, leads: bool
) -> None:
    issue.work_products.create(
        company=issue.company,
        type="pull_request",
        title="The change",
        url=url,
        created_at=issue.created_at,
        updated_at=issue.created_at,
    )
    page = text(olgas.get(f"/c/ACM/issues/{issue.identifier}"))
    assert "The change" in page
    assert (f'href="{url}"' in page) is (leads and bool(url))


def test_what_is_handed_in_is_told_by_its_title(olgas: Client, issue: Issue, scene: Scene) -> None:
    ada = Actor("agent", scene.ada.id, "Ada")
    marks.add_product(issue=issue, actor=ada, type="pull_request", title="The <price> list")
    page = text(olgas.get(f"/c/ACM/issues/{issue.identifier}"))
    assert "handed in <b" in page
    assert "pull request" in page
    assert page.count("The &lt;price&gt; list") == 2
