"""What the manual quotes of this program is what the program says."""

import re
import subprocess
from pathlib import Path

import pytest
from django.conf import settings

from agents import adapters
from paperclip import cluster, postgres

MANUAL = (settings.BASE_DIR / "docs" / "operating.md").read_text(encoding="utf-8")
APPS = ("companies", "agents", "issues", "billing", "paperclip")


@pytest.mark.parametrize(
    "words",
    [
        "is taken by another program",
        "Paperclip already runs on",
        "has finished no task for",
        "acknowledges no task any more",
        "has had no shift for",
        "answers no bell",
        "stale_write_blocked",
    ],
)
def test_what_to_do_when_quotes_real_words(words: str) -> None:
    chapter = MANUAL.partition("## What to do when")[2]
    source = "".join(
        path.read_text(encoding="utf-8")
        for app in APPS
        for path in (settings.BASE_DIR / app).rglob("*.py")
    )
    assert words in chapter
    assert words in source


def test_every_variable_of_the_manual_is_read_and_every_one_that_is_read_is_told() -> None:
    manual = "".join(
        path.read_text(encoding="utf-8") for path in (settings.BASE_DIR / "docs").rglob("*.md")
    )
    source = (settings.BASE_DIR / "paperclip" / "settings.py").read_text(encoding="utf-8")
    read = set(re.findall(r'env\.\w+\(\s*"(\w+)"', source)) - {"PAPERCLIP_PROCESS"}  # ours
    told = set(re.findall(r"^\| `([^|]*)` \|", MANUAL, re.MULTILINE))
    named = {name for cell in told for name in re.findall(r"[A-Z][A-Z_]{4,}", cell)}
    everything = "".join(
        path.read_text(encoding="utf-8")
        for app in APPS
        for path in (settings.BASE_DIR / app).rglob("*.py")
    )
    assert not {name for name in read if f"`{name}" not in manual}
    assert not {name for name in named if f'"{name}"' not in everything}


def test_every_setting_of_a_command_line_agent_is_told() -> None:
    told = (settings.BASE_DIR / "docs" / "cli-agents.md").read_text(encoding="utf-8")
    for adapter in adapters.all():
        if adapter.type.endswith("_local"):
            for name in adapter.Config.model_json_schema(by_alias=True)["properties"]:
                assert f"`{name}`" in told, (adapter.type, name)


def test_the_bundled_database_is_dumped_as_the_manual_says(tmp_path: Path, db: None) -> None:
    command = re.search(r"`(pg_dump -h SOCKET [^`>]+)", MANUAL)
    assert command
    if settings.DATABASE_URL:
        pytest.skip("the tests' database is not the bundled one")
    place = postgres.socket_dir(settings.TEST_PG_DIR)
    program = cluster.find_bin() / "pg_dump"
    words = command[1].replace("SOCKET", str(place)).split()
    done = subprocess.run(
        [program, *words[1:], "--schema-only"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
