"""What Paperclip is made of, and whether something is known against it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import audit, sbom
from tests.house.instance import ROOT

PINNED = sorted(ROOT.glob("requirements*.txt"))


def packages(path: Path) -> dict[str, str]:
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", path.read_text(), re.MULTILINE))


def test_the_bill_of_materials_names_each_pinned_package_with_its_hashes(tmp_path: Path) -> None:
    bill = tmp_path / "sbom.json"
    assert sbom.main(bill) == 0
    made = json.loads(bill.read_text())
    assert made["bomFormat"] == "CycloneDX"
    assert made["metadata"]["component"]["name"] == "paperclip"
    assert {part["name"]: part["version"] for part in made["components"]} == packages(
        ROOT / "requirements.txt"
    )
    for part in made["components"]:
        assert part["purl"] == f"pkg:pypi/{part['name']}@{part['version']}"
        assert part["externalReferences"][0]["hashes"]


@pytest.mark.parametrize("path", PINNED, ids=lambda path: path.name)
def test_every_requirement_is_pinned_by_hash_and_names_no_index(path: Path) -> None:
    text = path.read_text()
    assert "://" not in text
    assert "--index-url" not in text
    for block in re.split(r"\n(?=[A-Za-z0-9])", text):
        if re.match(r"[A-Za-z0-9]", block):
            assert "--hash=sha256:" in block, block.splitlines()[0]


def answer(*packages: dict[str, object]) -> str:
    return json.dumps({"dependencies": packages, "fixes": []})


GOOD = {"name": "good", "version": "1", "vulns": []}
UNASKED = {"name": "unasked", "skip_reason": "Dependency not found: unasked (1)"}
BAD = {"name": "bad", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"]}]}


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        (answer(GOOD), audit.CLEAN, "1 packages, nothing known"),
        (answer(GOOD, BAD), audit.FOUND, "bad 1: PYSEC-1, fixed in 2"),
        (answer(BAD, UNASKED), audit.FOUND, "NOT AUDITED, 1 of 2 packages: unasked"),
        (answer(GOOD, UNASKED), audit.UNKNOWN, "NOT AUDITED, 1 of 2 packages: unasked"),
        (answer(UNASKED), audit.UNKNOWN, "NOT AUDITED: no database"),
        (answer(), audit.UNKNOWN, "NOT AUDITED: no packages"),
        ("", audit.UNKNOWN, "NOT AUDITED: no database"),
        ("null", audit.UNKNOWN, "NOT AUDITED: no database"),
    ],
)
def test_only_what_was_asked_about_is_called_clean(said: str, code: int, words: str) -> None:
    found = audit.judge(said)
    assert found[0] == code
    assert words in found[1]


def test_a_machine_that_reaches_no_database_says_so_and_fails() -> None:
    nowhere = "http://127.0.0.1:9"
    env = os.environ | {
        "HTTPS_PROXY": nowhere,
        "https_proxy": nowhere,
        "NO_PROXY": "",
        "no_proxy": "",
    }
    done = subprocess.run(
        [sys.executable, "-m", "scripts.audit"], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert done.returncode == audit.UNKNOWN
    assert done.stdout.startswith("NOT AUDITED: no database of vulnerabilities was reached")
