"""A real cluster keeps the contract that the fake is built by."""

from __future__ import annotations

import pytest
from fakes.kube.contract import (
    AccessContract,
    ApplyContract,
    EndingContract,
    ListingContract,
    PatchingContract,
    RolloutContract,
    StatusContract,
    WatchingContract,
    WritingContract,
    note,
    scene,
    service,
)

__all__ = ["note", "scene", "service"]


class TestWriting(WritingContract): ...


class TestPatching(PatchingContract): ...


class TestApply(ApplyContract): ...


class TestStatus(StatusContract): ...


class TestEnding(EndingContract): ...


class TestListing(ListingContract): ...


class TestWatching(WatchingContract): ...


class TestAccess(AccessContract): ...


@pytest.mark.usefixtures("rollouts_kinds")
class TestRollouts(RolloutContract): ...
