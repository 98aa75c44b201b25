"""Bearer tokens that secret scanners can read: `pcb_<lookup>_<secret><checksum>`.

`pcb` is an operator's key, `pcp` an agent's, `pcr` a run's token. The lookup part finds the row,
the SHA-256 of the whole token proves it (256 random bits need no slow hash), the checksum tells a
typing error from an attack without asking the database.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import zlib
from dataclasses import dataclass, field

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PAIRS = [first + second for first in ALPHABET for second in ALPHABET]
OPERATOR, AGENT, RUN = "pcb", "pcp", "pcr"
_SHAPE = re.compile(r"(pcb|pcp|pcr)_([0-9A-Za-z]{12})_([0-9A-Za-z]{43})([0-9A-Za-z]{6})")
_INSIDE = re.compile(rb"(?:pcb|pcp|pcr)_[0-9A-Za-z]{12}_[0-9A-Za-z]{49}")


@dataclass(frozen=True, slots=True)
class Minted:
    """A new token, shown once, and what is kept of it."""

    token: str = field(repr=False)
    lookup: str
    digest: str


@dataclass(frozen=True, slots=True)
class Parsed:
    prefix: str
    lookup: str
    digest: str


def _random(length: int) -> str:
    """That many letters of the alphabet, each as likely as any other: what 128 bits too many leave
    over is nothing."""
    count = (length + 1) // 2
    number, pairs = secrets.randbits(12 * count + 128), []
    for _ in range(count):
        number, rest = divmod(number, len(_PAIRS))
        pairs.append(_PAIRS[rest])
    return "".join(pairs)[:length]


def _checksum(body: str) -> str:
    number, digits = zlib.crc32(body.encode()), ""
    for _ in range(6):
        number, rest = divmod(number, 62)
        digits = ALPHABET[rest] + digits
    return digits


def digest(token: str) -> str:
    """What is stored of a token: its SHA-256, in hex."""
    return hashlib.sha256(token.encode()).hexdigest()


def mint(prefix: str) -> Minted:
    """A new token of the kind that `prefix` names."""
    letters = _random(55)
    lookup = letters[:12]
    body = f"{prefix}_{lookup}_{letters[12:]}"
    token = body + _checksum(body)
    return Minted(token=token, lookup=lookup, digest=digest(token))


def parse(token: str) -> Parsed | None:
    """The parts of a well-formed token, or None. Says nothing of whether it is known."""
    match = _SHAPE.fullmatch(token)
    if match is None:
        return None
    prefix, lookup, secret, check = match.groups()
    if _checksum(f"{prefix}_{lookup}_{secret}") != check:
        return None
    return Parsed(prefix=prefix, lookup=lookup, digest=digest(token))


def inside(text: bytes) -> bool:
    """Does this text show a token?"""
    return _INSIDE.search(text) is not None
