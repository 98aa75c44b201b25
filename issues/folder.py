"""Looking into a folder that an agent has written to, and nowhere else.

Each step of a path is opened from the one before it and no link is followed, so that there is no
moment in which a name can come to mean something outside. A file with a second name (a hard link)
is not shown either: the other name may lie anywhere. Raises NotFound, Refusal.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from companies.errors import NotFound, Refusal

MAX_ENTRIES = 500
MAX_DEPTH = 64
PATH_CHARS = 4_000
FILE_BYTES = 256 * 1024

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a folder. `kind` is folder, file, link or other; `can_open` when its name can be
    part of an address."""

    name: str
    kind: str
    size: int
    can_open: bool


@dataclass(frozen=True, slots=True)
class Listing:
    entries: list[Entry]
    more: bool


@dataclass(frozen=True, slots=True)
class File:
    """A file's text up to FILE_BYTES, None when it is no text."""

    text: str | None
    size: int
    cut: bool


def steps(path: str) -> list[str]:
    """The names of a relative path. Raises NotFound for one that is none."""
    if "\0" in path or len(path) > PATH_CHARS:
        raise NotFound()
    names = [name for name in path.split("/") if name]
    if len(names) > MAX_DEPTH or any(name in (".", "..") for name in names) or ".git" in names[:1]:
        raise NotFound()
    return names


def look(root: str, path: str) -> Listing | File:
    """What is at `path` below `root`: a folder's entries or a file's text."""
    names = steps(path)
    with _folder(root, names[:-1]) as parent:
        if not names:
            return _list(parent, is_root=True)
        kind = _lstat(parent, names[-1]).st_mode
        if stat.S_ISDIR(kind):
            with _opened(names[-1], _DIRECTORY, parent) as folder:
                return _list(folder)
        if not stat.S_ISREG(kind):
            raise Refusal("not_shown", "Links and special files are not opened.")
        with _opened(names[-1], _FILE, parent) as file:
            return _read(file)


@contextmanager
def _folder(root: str, names: list[str]) -> Iterator[int]:
    current = _open(root, _DIRECTORY, None)
    try:
        for name in names:
            below = _open(name, _DIRECTORY, current)
            os.close(current)
            current = below
        yield current
    finally:
        os.close(current)


@contextmanager
def _opened(name: str, flags: int, parent: int) -> Iterator[int]:
    descriptor = _open(name, flags, parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open(name: str, flags: int, parent: int | None) -> int:
    try:
        return os.open(name, flags, dir_fd=parent)
    except (OSError, ValueError):  # not there, a link, not to be read, no name
        raise NotFound() from None


def _lstat(parent: int, name: str) -> os.stat_result:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except (OSError, ValueError):
        raise NotFound() from None


def _list(folder: int, *, is_root: bool = False) -> Listing:
    with os.scandir(folder) as found:
        some = list(islice((e for e in found if not (is_root and e.name == ".git")), MAX_ENTRIES))
        more = next(found, None) is not None
    entries = [_entry(one) for one in some]
    return Listing(sorted(entries, key=lambda e: (e.kind != "folder", e.name)), more)


def _entry(one: os.DirEntry[str]) -> Entry:
    raw = os.fsencode(one.name)
    shown = raw.decode("utf-8", "replace")
    if one.is_symlink():
        kind = "link"
    elif one.is_dir(follow_symlinks=False):
        kind = "folder"
    else:
        kind = "file" if one.is_file(follow_symlinks=False) else "other"
    try:
        size = one.stat(follow_symlinks=False).st_size if kind == "file" else 0
    except OSError:  # it has just gone
        size = 0
    return Entry(shown, kind, size, kind in ("folder", "file") and shown.encode() == raw)


def _read(file: int) -> File:
    about = os.fstat(file)
    if not stat.S_ISREG(about.st_mode):
        raise NotFound()
    if about.st_nlink > 1:
        raise Refusal("not_shown", "A file with a second name elsewhere is not opened.")
    data = b""
    while len(data) <= FILE_BYTES and (chunk := os.read(file, FILE_BYTES + 1 - len(data))):
        data += chunk
    cut = len(data) > FILE_BYTES
    data = data[:FILE_BYTES]
    if b"\0" in data:
        return File(None, about.st_size, cut)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        if not cut or error.start < len(data) - 4:
            return File(None, about.st_size, cut)
        text = data[: error.start].decode("utf-8")
    return File(text, about.st_size, cut)
