"""Bearer tokens: what is kept, what is refused without asking the database."""

import pytest

from companies import keys


@pytest.mark.parametrize("prefix", [keys.OPERATOR, keys.AGENT, keys.RUN])
def test_a_minted_token_is_read_back(prefix: str) -> None:
    minted = keys.mint(prefix)
    parsed = keys.parse(minted.token)
    assert parsed is not None
    assert (parsed.prefix, parsed.lookup, parsed.digest) == (prefix, minted.lookup, minted.digest)
    assert minted.digest == keys.digest(minted.token)


def test_a_token_is_not_shown_with_what_carries_it() -> None:
    minted = keys.mint(keys.AGENT)
    assert minted.lookup in repr(minted)
    assert minted.token not in repr(minted)


def test_one_changed_letter_is_told_by_the_checksum() -> None:
    token = keys.mint(keys.AGENT).token
    position = len(token) - 20
    other = "A" if token[position] != "A" else "B"
    assert keys.parse(token[:position] + other + token[position + 1 :]) is None


@pytest.mark.parametrize(
    "token", ["", "pcb_", "xyz_abc", "Bearer pcb_x", "pcb_" + "a" * 200, "pcb_\x00", "pcb_é" * 9]
)
def test_what_is_no_token_is_none(token: str) -> None:
    assert keys.parse(token) is None


def test_every_letter_may_stand_at_every_place() -> None:
    tokens = [keys.mint(keys.RUN).token[4:60] for _ in range(2_000)]
    places = [set(letters) for letters in zip(*tokens, strict=True)]
    assert places.pop(12) == {"_"}
    assert all(place == set(keys.ALPHABET) for place in places)


def test_two_tokens_never_share_a_lookup() -> None:
    assert len({keys.mint(keys.RUN).lookup for _ in range(500)}) == 500
