"""A folder is looked into, and nothing outside of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from companies.errors import NotFound, Refusal
from issues import folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A hostile folder beside a secret."""
    (tmp_path / "secret").write_text("the key")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "key").write_text("the key")
    root = tmp_path / "root"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text("print('ä')\n")
    (root / ".git").write_text("gitdir: /somewhere")
    (root / "to-file").symlink_to(tmp_path / "secret")
    (root / "to-folder").symlink_to(tmp_path / "outside")
    (root / "src" / "up").symlink_to("../..")
    (root / "loop").symlink_to("loop")
    os.link(tmp_path / "secret", root / "second-name")
    os.mkfifo(root / "pipe")
    return root


ESCAPES = [
    "..", "../secret", "src/../../secret", "./..", "src/./a.py", "to-file", "to-folder",
    "to-folder/key", "src/up", "src/up/secret", "second-name", "pipe", "loop", "loop/x", ".git",
    ".git/config", "src/a.py/x", "nothing", "a\0b", "x/" * 70 + "y", "n" * 5_000, "n" * 300,
]  # fmt: skip


@pytest.mark.parametrize("path", ESCAPES)
def test_nothing_leads_out(root: Path, path: str) -> None:
    with pytest.raises(Refusal):
        folder.look(str(root), path)


def test_an_absolute_path_begins_at_the_top_of_the_folder(root: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        folder.look(str(root), str(tmp_path / "secret"))


def test_a_top_that_became_a_link_is_not_followed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "top").symlink_to(tmp_path / "outside")
    with pytest.raises(NotFound):
        folder.look(str(tmp_path / "top"), "")


def test_a_folder_lists_its_entries_and_not_gits_own(root: Path) -> None:
    found = folder.look(str(root), "")
    assert isinstance(found, folder.Listing)
    kinds = {entry.name: (entry.kind, entry.can_open) for entry in found.entries}
    assert kinds == {
        "src": ("folder", True),
        "loop": ("link", False),
        "pipe": ("other", False),
        "second-name": ("file", True),
        "to-file": ("link", False),
        "to-folder": ("link", False),
    }


def test_a_text_is_read(root: Path) -> None:
    assert folder.look(str(root), "src/a.py") == folder.File("print('ä')\n", 12, False)


def test_a_huge_file_is_read_up_to_the_cap(root: Path) -> None:
    with open(root / "huge", "wb") as file:
        file.write("ä".encode() * folder.FILE_BYTES)
        file.truncate(5 * 1024**3)  # gigabytes, with a hole
    found = folder.look(str(root), "huge")
    assert isinstance(found, folder.File)
    assert found.cut
    assert found.size == 5 * 1024**3
    assert found.text is not None
    assert len(found.text.encode()) <= folder.FILE_BYTES


@pytest.mark.parametrize("content", [b"\0", b"\xff\xfe", b"GIF89a\0\1", b"ok \xc3"])
def test_what_is_no_text_is_not_shown(root: Path, content: bytes) -> None:
    (root / "picture").write_bytes(content)
    found = folder.look(str(root), "picture")
    assert isinstance(found, folder.File)
    assert found.text is None


def test_a_name_that_is_no_text_is_listed_and_not_opened(root: Path) -> None:
    (root / "src" / os.fsdecode(b"bad-\xff")).write_text("x")
    found = folder.look(str(root), "src")
    assert isinstance(found, folder.Listing)
    odd = next(entry for entry in found.entries if entry.name.startswith("bad"))
    assert (odd.name, odd.can_open) == ("bad-\N{REPLACEMENT CHARACTER}", False)


def test_a_crowded_folder_lists_the_first_ones(tmp_path: Path) -> None:
    for number in range(folder.MAX_ENTRIES + 1):
        (tmp_path / str(number)).touch()
    found = folder.look(str(tmp_path), "")
    assert isinstance(found, folder.Listing)
    assert (len(found.entries), found.more) == (folder.MAX_ENTRIES, True)
