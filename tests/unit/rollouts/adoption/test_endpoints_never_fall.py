"""No sequence of adopting, delivering and giving back, in any order of faults, takes users from ready pods."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from fakes.clusters.adoption import RELEASES, WHO, a_region_of_others, adoption_of
from fakes.clusters.region import NAME, ClusterRegion, Endpoints, an_image
from fakes.kube.refusal import Refusal, conflict
from fakes.kube.requests import WRITES, Call, Effect, Fault, LoseAnswer, LoseRequest, Meanwhile, Refuse
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rollouts.kube.resources import PODS, SERVICES
from rollouts.manifests.conventions import stable_service
from tidegate.core.errors import TidegateError

Operation = Callable[[ClusterRegion], Awaitable[object]]

OPERATIONS: dict[str, Operation] = {
    "adopt": lambda region: adoption_of(region).adopt(WHO, lambda _: None),
    "release": lambda region: adoption_of(region).release(lambda _: None),
    "deploy 2": lambda region: region.fleet.deploy(an_image("2")),
    "shift": lambda region: region.fleet.shift(50),
    "promote": lambda region: region.fleet.promote(),
    "back": lambda region: region.fleet.rollback(None),
    "back to 1": lambda region: region.fleet.rollback("1"),
    "later": lambda region: region.time.sleep(3 * 3600),
}
REFUSALS = {
    "403": Refusal(403, "Forbidden", "a policy does not take it"),
    "409": conflict("object", ""),
    "503": Refusal(503, "ServiceUnavailable", "the server is currently unable to handle the request"),
}
EFFECTS = ("lost request", "lost answer", "a wider selector", "a pod ends", "it stays cut", *REFUSALS)


@dataclass(frozen=True)
class Trouble:
    """One thing that goes wrong at one of the next writes."""

    effect: str
    after: int


TROUBLES = st.builds(Trouble, st.sampled_from(EFFECTS), st.integers(0, 12))
STORIES = st.lists(
    st.tuples(st.sampled_from(sorted(OPERATIONS)), st.lists(TROUBLES, max_size=2).map(tuple)), min_size=1, max_size=5
)


def fault_of(region: ClusterRegion, trouble: Trouble) -> Fault:
    def reselect(_: Call) -> None:
        if region.cluster.find(SERVICES, stable_service(NAME)):
            wider = {"spec": {"selector": {"rollouts-pod-template-hash": None}}}
            region.cluster.patch(SERVICES, stable_service(NAME), wider, manager="kubectl-edit")

    def end(_: Call) -> None:
        if found := region.cluster.list(PODS):
            region.cluster.delete(PODS, found[0]["metadata"]["name"])

    effects: dict[str, Effect] = {
        "lost request": LoseRequest(),
        "it stays cut": LoseRequest(),
        "lost answer": LoseAnswer(),
        "a wider selector": Meanwhile(reselect),
        "a pod ends": Meanwhile(end),
    }
    effect = effects.get(trouble.effect) or Refuse(REFUSALS[trouble.effect])
    times = None if trouble.effect == "it stays cut" else 1
    return Fault(effect, verbs=WRITES, after=trouble.after, times=times)


async def tried(region: ClusterRegion, operation: str, troubles: Sequence[Trouble], *, then_seconds: float) -> None:
    """Begin it with these troubles ahead, and wait for what comes after."""
    region.api.faults.clear()
    for each in troubles:
        region.api.faults.add(fault_of(region, each))
    with suppress(TidegateError):
        await OPERATIONS[operation](region)
    await region.time.sleep(then_seconds)


async def told(release: str, story: list[tuple[str, tuple[Trouble, ...]]]) -> Endpoints:
    region = await a_region_of_others(RELEASES[release]())
    endpoints = Endpoints(region.cluster)
    await OPERATIONS["adopt"](region)
    for operation, troubles in story:
        await tried(region, operation, troubles, then_seconds=30)
    return endpoints


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(RELEASES)), STORIES)
@example("split by weight", [("release", ())])
def test_no_write_of_an_adoption_takes_users_from_ready_pods(
    release: str, story: list[tuple[str, tuple[Trouble, ...]]]
) -> None:
    endpoints = asyncio.run(told(release, story))
    assert endpoints.lost == []
    assert endpoints.misled == []
