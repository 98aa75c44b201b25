"""How long a shift may believe that its runs are its own."""

from __future__ import annotations

import time

from agents import workers
from paperclip.engine.lease import MARGIN_SECONDS, Lease

TRUSTED = workers.LEASE_SECONDS - MARGIN_SECONDS


def test_before_the_first_answer_nothing_is_trusted():
    assert not Lease().good


def test_it_is_trusted_from_the_asking_for_a_little_less_than_the_lease():
    lease = Lease()
    asked = time.monotonic()
    lease.renewed(asked_at=asked)

    assert lease.good
    assert lease.left <= TRUSTED
    lease.renewed(asked_at=asked - TRUSTED + 0.5)
    assert 0 < lease.left <= 0.5


def test_trust_that_has_ended_is_not_won_back():
    """What runs said meanwhile was refused, so that they must not go on."""
    lease = Lease()
    lease.renewed(asked_at=time.monotonic() - TRUSTED)
    assert not lease.good

    lease.renewed(asked_at=time.monotonic())
    assert not lease.good


def test_nor_after_its_end():
    lease = Lease()
    lease.renewed(asked_at=time.monotonic())
    lease.end()
    lease.renewed(asked_at=time.monotonic())

    assert not lease.good
