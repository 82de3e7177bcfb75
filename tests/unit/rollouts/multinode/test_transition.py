"""From any spread of users to any other: each write is safe by itself, and the way ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.base import RegionSplit
from rollouts.multinode.snapshot import Placement
from rollouts.multinode.transition import NameCanary, NameStable, SetWeights, Step, next_step

pytestmark = pytest.mark.long

PERCENT = st.sampled_from([0, 5, 50, 100])


@st.composite
def splits(draw: st.DrawFn) -> RegionSplit:
    stable, canary, previous = draw(st.permutations("1234"))[:3]
    on_trial = draw(st.booleans())
    return RegionSplit(
        stable=stable,
        canary=canary if on_trial else None,
        previous=draw(st.sampled_from([previous, None])),
        weight=draw(PERCENT) if on_trial else 0,
        mirror=draw(PERCENT) if on_trial else 0,
    )


def after(now: Placement, step: Step) -> Placement:
    """What a cluster shows then; the canary's Service leads where it led."""
    there = now.split
    if isinstance(step, SetWeights):
        return Placement(there.model_copy(update={"weight": step.weight, "mirror": step.mirror}), now.canary_named)
    if isinstance(step, NameCanary):
        return Placement(there.model_copy(update={"canary": step.version}), canary_named=True)
    canary = there.canary or there.stable
    split = {"stable": step.version, "previous": step.previous, "canary": None if canary == step.version else canary}
    return Placement(there.model_copy(update=split), now.canary_named and canary != step.version)


def way(now: Placement, wanted: RegionSplit) -> list[tuple[Placement, Step]]:
    steps = []
    while (step := next_step(now, wanted)) is not None:
        steps.append((now, step))
        now = after(now, step)
        assert len(steps) < 8, steps
    assert now.split == wanted
    return steps


def users_of(placement: Placement) -> dict[str, int]:
    """Percent of users by version."""
    split = placement.split
    canary = split.canary or split.stable
    found: dict[str, int] = {}
    for version, share in ((split.stable, 100 - split.weight), (canary, split.weight)):
        if version and share:
            found[version] = found.get(version, 0) + share
    return found


@given(splits(), splits(), st.booleans())
def test_every_way_ends_where_it_should_and_meets_no_third_version(
    there: RegionSplit, wanted: RegionSplit, canary_named: bool
) -> None:
    if not canary_named:
        there = there.model_copy(update={"canary": None, "weight": 0, "mirror": 0})
    now = Placement(there, canary_named)
    known = users_of(now).keys() | {wanted.stable, wanted.canary}
    for _, step in (steps := way(now, wanted)):
        now = after(now, step)
        assert users_of(now).keys() <= known, steps


@given(splits(), splits())
def test_a_service_with_users_of_the_canary_leads_to_no_other_version(there: RegionSplit, wanted: RegionSplit) -> None:
    for before, step in way(Placement(there), wanted):
        if isinstance(step, NameCanary):
            assert (before.split.weight, before.split.mirror) == (0, 0)


@given(splits())
def test_a_promotion_moves_all_users_with_one_write(there: RegionSplit) -> None:
    if there.canary is None:
        return
    wanted = RegionSplit(stable=there.canary, previous=there.stable)
    (before, first), *_ = way(Placement(there), wanted)
    assert first == NameStable(there.canary, there.stable)
    assert users_of(after(before, first)) == {there.canary: 100}


@given(splits())
def test_a_way_back_from_a_trial_is_one_write_for_users(there: RegionSplit) -> None:
    wanted = there.model_copy(update={"canary": None, "weight": 0, "mirror": 0})
    steps = way(Placement(there), wanted)
    if there.weight or there.mirror:
        assert steps[0][1] == SetWeights(0, 0)


def test_nothing_is_written_to_a_region_in_which_nothing_is_to_serve() -> None:
    assert next_step(Placement(), RegionSplit()) is None
