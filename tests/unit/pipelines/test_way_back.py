"""Where regions go back to: by the ledger, by each other, and never forward."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pipelines.run.rollback_target import before, before_by_others, cold, in_words, is_back, previous_of
from registry.model import DeliverySummary
from rollouts.model import EngineSet, RegionPhase, RegionState, Role
from tidegate.core.errors import UsageError

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def an_arm(role: Role, version: str) -> EngineSet:
    return EngineSet(role=role, version=version, digest="d", url="http://127.0.0.1:1", ready=True)


def a_region(name: str, stable: str = "", previous: str = "", *, canary: str = "", warm: str = "") -> RegionState:
    return RegionState(
        region=name,
        phase=RegionPhase.STEADY,
        entry="http://127.0.0.1:8080",
        stable=an_arm(Role.STABLE, stable) if stable else None,
        previous=an_arm(Role.PREVIOUS, previous) if previous else None,
        canary=an_arm(Role.CANARY, canary) if canary else None,
        warm=tuple(warm or previous),
    )


def regions(*states: RegionState) -> dict[str, RegionState]:
    return {state.region: state for state in states}


def a_delivery(outcome: str | None, *, champion: str | None = "1") -> DeliverySummary:
    known = {"id": "d", "name": "m", "version": "2", "started": NOON, "host": "ci", "pid": 1, "heartbeat": NOON}
    return DeliverySummary.model_validate(known | {"outcome": outcome, "champion": champion})


PROMOTED_IN_ONE = regions(a_region("eu", "2", "1"), a_region("us", "1", "0"))


@pytest.mark.parametrize("outcome", [None, "rolled-back", "interrupted", "failed", "inconclusive"])
def test_what_an_unfinished_delivery_promoted_goes_back_to_what_was_before(outcome: str | None) -> None:
    assert before(PROMOTED_IN_ONE, a_delivery(outcome)) == {"eu": "1"}


@pytest.mark.parametrize("last", [None, a_delivery("delivered"), a_delivery(None, champion=None)])
def test_nothing_moves_where_no_delivery_is_unfinished(last: DeliverySummary | None) -> None:
    assert before(PROMOTED_IN_ONE, last) == {}


def test_a_region_that_is_behind_is_not_moved_forward() -> None:
    assert before(regions(a_region("eu", "2", "1"), a_region("us", "0")), a_delivery(None)) == {"eu": "1"}


def test_without_the_ledger_the_others_tell_what_was_before() -> None:
    assert before_by_others(PROMOTED_IN_ONE) == {"eu": "1"}
    everywhere = regions(a_region("eu", "2", "1"), a_region("us", "2", "1"))
    assert before_by_others(everywhere) == {}
    assert before_by_others(regions(a_region("eu", "2", "1"))) == {}


def test_previous_is_what_the_regions_keep_and_else_the_alias() -> None:
    same = regions(a_region("eu", "3", "2"), a_region("us", "3"))
    assert previous_of(same, None) == "2"
    assert previous_of(regions(a_region("eu", "3")), "2") == "2"


def test_previous_that_no_one_knows_is_refused() -> None:
    with pytest.raises(UsageError, match="no region keeps a version before its own warm; choose one: --to VERSION"):
        previous_of(regions(a_region("eu", "3")), None)
    with pytest.raises(UsageError, match=r"different versions before theirs \(eu 2, us 1\); choose one: --to VERSION"):
        previous_of(regions(a_region("eu", "3", "2"), a_region("us", "3", "1")), None)


def test_it_is_said_where_a_version_is_warm() -> None:
    found = regions(a_region("eu", "3", warm="21"), a_region("us", "3", "2"), a_region("ap", "1"))
    assert cold(found, "1") == ["us"]
    assert in_words(found, "1") == (
        "eu: 3 -> 1 (warm); us: 3 -> 1 (has to be started again: minutes); ap: 1 -> 1 (it stays)"
    )


def test_a_region_is_back_when_nobody_is_on_trial() -> None:
    assert is_back(a_region("eu", "1"))
    assert not is_back(a_region("eu", "1", canary="2"))
    assert not is_back(a_region("eu", "1").model_copy(update={"weight": 5}))
    assert not is_back(a_region("eu", "1").model_copy(update={"mirror": 100}))
