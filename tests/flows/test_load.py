"""`manage.py load` against a whole instance."""

from __future__ import annotations

import re

from tests.flows.office import Office
from tests.house.instance import manage


def test_a_small_load_is_carried_without_a_failure(office: Office) -> None:
    """The users' tasks are done, the table tells of them, and nothing of the load goes on."""
    done = manage("load", "--users", "2", "--ramp", "0", "--hold", "6", env=office.instance.env)
    assert done.returncode == 0, done.stderr
    counted = re.search(r"tasks counted / failed \| (\d+) / (\d+)", done.stdout)
    assert counted is not None, done.stdout
    assert int(counted[1]) > 0
    assert int(counted[2]) == 0
    for kind in ("web", "tasks", "shifts", "database"):
        assert f"{kind} " in done.stdout
    assert all(company["status"] == "archived" for company in _loads(office))
    assert [key["name"] for key in office.get("/board-api-keys")] == ["command line"]


def _loads(office: Office) -> list[dict[str, str]]:
    found = [one for one in office.get("/companies") if one["name"].startswith("Load ")]
    return found
