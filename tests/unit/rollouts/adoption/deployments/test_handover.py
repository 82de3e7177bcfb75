"""Users have as many ready pods as they had, whatever comes up or ends in between."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.adoption.deployments.handover import PodCounts, kept, next_scale

pytestmark = pytest.mark.long


@dataclass
class Pods:
    """Of one workload: they start and end one by one, and those that are not ready end first."""

    replicas: int
    ready: int
    starting: int = 0
    ending: int = 0

    @property
    def side(self) -> PodCounts:
        return PodCounts(replicas=self.replicas, ready=self.ready, pods=self.ready + self.starting + self.ending)

    def scale(self, replicas: int) -> None:
        self.replicas = replicas
        extra = self.ready + self.starting - replicas
        self.starting += max(0, -extra)
        for _ in range(max(0, extra)):
            if self.starting:
                self.starting -= 1
            else:
                self.ready -= 1
            self.ending += 1

    def moves_on(self, what: str) -> None:
        """A pod becomes ready, or is gone."""
        if what == "comes up" and self.starting:
            self.starting, self.ready = self.starting - 1, self.ready + 1
        if what == "is gone" and self.ending:
            self.ending -= 1


EVENTS = st.lists(st.tuples(st.sampled_from(["comes up", "is gone"]), st.booleans()), max_size=80)


@given(st.integers(1, 9), st.integers(1, 12), EVENTS)
def test_there_are_never_fewer_ready_pods_than_wanted_nor_more_than_the_surge(
    wanted: int, surge: int, events: list[tuple[str, bool]]
) -> None:
    giving, taking = Pods(wanted, ready=wanted), Pods(0, ready=0)
    for what, of_taking in [*events, *[(what, one) for what in ("comes up", "is gone") for one in (True, False)] * 99]:
        while step := next_scale(giving.side, taking.side, wanted, surge):
            (taking if step.taking else giving).scale(step.replicas)
            assert giving.ready + taking.ready >= wanted
            assert giving.side.held + taking.side.held <= wanted + surge
        (taking if of_taking else giving).moves_on(what)
    assert (taking.replicas, taking.ready) == (wanted, wanted)
    assert giving.ready + taking.ready >= wanted


@given(st.integers(1, 9), st.integers(0, 9))
def test_a_pod_that_fails_is_no_reason_to_take_one_from_the_other(wanted: int, ready: int) -> None:
    taking = PodCounts(replicas=wanted, ready=min(ready, wanted), pods=wanted)
    assert kept(taking, wanted) == wanted - taking.ready


def test_with_room_for_all_nothing_is_given_away_before_all_are_there() -> None:
    serving = PodCounts(replicas=4, ready=4, pods=4)
    assert next_scale(serving, PodCounts(replicas=0, ready=0, pods=0), 4, 4) == (True, 4)
    assert next_scale(serving, PodCounts(replicas=4, ready=3, pods=4), 4, 4) is None
    assert next_scale(serving, PodCounts(replicas=4, ready=4, pods=4), 4, 4) is None


def test_a_workload_that_has_the_users_gives_nothing_away() -> None:
    serving, coming = PodCounts(replicas=4, ready=4, pods=4), PodCounts(replicas=1, ready=1, pods=1)
    assert next_scale(serving, coming, 4, 1) == (False, 3)
    assert next_scale(serving, coming, 4, 1, may_lower=False) is None
