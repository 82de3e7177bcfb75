"""No sequence of our writes, in any order of faults, takes users from ready pods; nor is anybody's object taken.

Neither by a Service that selects fewer of them, nor by a route that sends users where none is ready; `Endpoints` has
the precise words.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest
from fakes.clusters.region import NAME, NAMESPACE, ClusterRegion, Endpoints, a_fleet, a_release, an_image
from fakes.kube.refusal import Refusal, conflict
from fakes.kube.requests import WRITES, Call, Effect, Fault, LoseAnswer, LoseRequest, Meanwhile, Refuse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollouts.cluster.fleet import ArgoFleet
from rollouts.kube.resources import ROLLOUTS, SERVICES, resource_of
from rollouts.manifests.conventions import TrafficRouter, canary_service, stable_service
from tidegate.core.errors import TidegateError
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY

REGION = "eu-west-1"
Operation = Callable[[ArgoFleet], Awaitable[object]]

OPERATIONS: dict[str, Operation] = {
    "deploy 1": lambda fleet: fleet.deploy(an_image("1")),
    "deploy 2": lambda fleet: fleet.deploy(an_image("2")),
    "deploy 3": lambda fleet: fleet.deploy(an_image("3")),
    "mirror": lambda fleet: fleet.mirror(100),
    "shift": lambda fleet: fleet.shift(50),
    "promote": lambda fleet: fleet.promote(),
    "back to 1": lambda fleet: fleet.rollback("1"),
    "back to 2": lambda fleet: fleet.rollback("2"),
}

REFUSALS = {
    "403": Refusal(403, "Forbidden", "a policy does not take it"),
    "409": conflict(ROLLOUTS, ""),
    "422": Refusal(422, "Invalid", "it cannot be"),
    "503": Refusal(503, "ServiceUnavailable", "the server is currently unable to handle the request"),
}
EFFECTS = ("lost request", "lost answer", "a rival", "a new selector", *REFUSALS)


@dataclass(frozen=True)
class Trouble:
    """One thing that goes wrong at one of the next writes."""

    effect: str
    after: int
    which: int
    """Of the release's objects, for a rival."""


@dataclass(frozen=True)
class Story:
    """What is there before, what is desired, and what goes wrong meanwhile."""

    theirs: frozenset[int]
    """The objects of a release of somebody else's that are there."""
    labelled: frozenset[int]
    """Those of them that somebody has labelled as ours."""
    operations: tuple[tuple[str, tuple[Trouble, ...]], ...]
    traffic: TrafficRouter


TROUBLES = st.builds(Trouble, st.sampled_from(EFFECTS), st.integers(0, 8), st.integers(0, 3))
OBJECTS = st.frozensets(st.integers(0, 3))
STORIES = st.builds(
    Story,
    st.one_of(st.just(frozenset[int]()), OBJECTS),
    OBJECTS,
    st.lists(
        st.tuples(st.sampled_from(sorted(OPERATIONS)), st.lists(TROUBLES, max_size=3).map(tuple)),
        min_size=1,
        max_size=5,
    ).map(tuple),
    st.sampled_from(TrafficRouter),
)


def bring(region: ClusterRegion, which: int, *, labelled: bool) -> None:
    """One object of the release, where nothing of that name is yet."""
    body = a_release(NAME, NAMESPACE)[which]
    if labelled:
        metadata: Json = {**body["metadata"], "labels": {**body["metadata"]["labels"], DELIVERY: NAME}}
        body = {**body, "metadata": metadata}
    if region.cluster.find(resource_of(body), body["metadata"]["name"]) is None:
        region.cluster.create(resource_of(body), body, manager="helm")


def effect_of(region: ClusterRegion, trouble: Trouble) -> Effect:
    def rival(_: Call) -> None:
        bring(region, trouble.which, labelled=False)

    def reselect(_: Call) -> None:
        name = a_release(NAME, NAMESPACE)[trouble.which % 2]["metadata"]["name"]
        if region.cluster.find(SERVICES, name):
            wider = {"spec": {"selector": {"rollouts-pod-template-hash": None}}}
            region.cluster.patch(SERVICES, name, wider, manager="kubectl-edit")

    others: dict[str, Effect] = {
        "lost request": LoseRequest(),
        "lost answer": LoseAnswer(),
        "a rival": Meanwhile(rival),
        "a new selector": Meanwhile(reselect),
    }
    return others[trouble.effect] if trouble.effect in others else Refuse(REFUSALS[trouble.effect])


async def told(story: Story) -> Endpoints:
    region = ClusterRegion(spec=a_fleet(REGION, traffic=story.traffic), retry_seconds=30)
    for which in sorted(story.theirs):
        bring(region, which, labelled=which in story.labelled)
    await region.time.sleep(60)
    endpoints = Endpoints(region.cluster)
    for operation, troubles in story.operations:
        region.api.faults.clear()
        for each in troubles:
            region.api.faults.add(Fault(effect_of(region, each), verbs=WRITES, after=each.after))
        with suppress(TidegateError):
            await OPERATIONS[operation](region.fleet)
        await region.time.sleep(30)
    return endpoints


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(STORIES)
def test_no_write_of_ours_takes_users_from_ready_pods(story: Story) -> None:
    endpoints = asyncio.run(told(story))
    assert endpoints.lost == []
    assert endpoints.misled == []
    assert endpoints.taken_over == []


@pytest.mark.parametrize("traffic", TrafficRouter)
async def test_a_write_that_sends_users_where_no_pod_is_ready_is_seen(traffic: TrafficRouter) -> None:
    region = ClusterRegion(spec=a_fleet(REGION, traffic=traffic))
    await region.fleet.deploy(an_image("1"))
    endpoints, canary = Endpoints(region.cluster), canary_service(NAME)
    region.cluster.patch(SERVICES, canary, {"spec": {"selector": {"somebody": "nobody"}}}, manager="kubectl-edit")
    for percent, manager in ((20, "argo-rollouts"), (0, "tidegate"), (50, "tidegate"), (60, "tidegate")):
        route = region.routes.weighted(region.route, percent)
        region.cluster.patch(region.routes.resource, NAME, {"spec": route["spec"]}, manager=manager)
    told = [f"{NAME}: 0 % -> 50 % to {canary}", f"{NAME}: 50 % -> 60 % to {canary}"]
    region.cluster.delete(region.routes.resource, NAME)
    assert endpoints.misled == [*told, f"{NAME}: gone, and with it the way to {stable_service(NAME)}"]
