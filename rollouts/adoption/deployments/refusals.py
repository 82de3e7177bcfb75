"""Why a Deployment cannot be adopted as it is, and what to know of one that can be. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rollouts.adoption.deployments.model import DeploymentPlace
from rollouts.adoption.deployments.writes import expected_place
from rollouts.adoption.model import AdoptedVersion
from rollouts.adoption.refusals import refusals
from rollouts.cluster.capacity import Headroom
from rollouts.kube.objects import at, labels_of, matches, name_of, owned_by, said
from rollouts.kube.resources import HORIZONTAL_POD_AUTOSCALERS, POD_DISRUPTION_BUDGETS, SCALED_OBJECTS
from tidegate.core.model import Json

_PAUSED, _PAUSED_AT = "autoscaling.keda.sh/paused", "autoscaling.keda.sh/paused-replicas"
"""KEDA's annotations of a ScaledObject: it rests, or keeps that many pods."""


def deployment_refusals(side: DeploymentPlace, who: AdoptedVersion, surge: int) -> tuple[str, ...]:
    """All that is in the way of making a Rollout next to it; none where nothing is."""
    return (*_of_its_state(side), *_of_its_scalers(side, surge), *refusals(expected_place(side, who.delivery), who))


def room_refusal(side: DeploymentPlace, surge: int, rooms: Sequence[Headroom]) -> tuple[str, str]:
    """That there is no room for both, and what to do; both empty where there is."""
    tightest = min(rooms, key=lambda each: each.pods, default=None)
    needed = min(surge, side.wanted)
    if tightest is None or tightest.pods >= needed:
        return "", ""
    more = f"{needed} more pods" if needed > 1 else "1 more pod"
    what = f"until users have moved {more} are needed, and there is room for {tightest.pods}: {tightest.bound_by}"
    if not tightest.pods:
        return what, "bring nodes for one more at least, or serve with fewer replicas meanwhile"
    parts = f"`--surge {tightest.pods}` moves as many at a time, and never has fewer than {side.wanted} ready"
    return what, f"{parts}; or bring nodes for {needed - tightest.pods} more"


def notes(side: DeploymentPlace) -> tuple[str, ...]:
    """What else has to do with the Deployment's pods, and what becomes of it."""
    if side.deployment is None:
        return ()
    return tuple(_notes(side, side.deployment))


def _of_its_state(side: DeploymentPlace) -> Iterator[str]:
    deployment, asked = side.deployment, side.deployed.replicas
    seen = int(at(deployment, "status", "observedGeneration", default=0))
    updated = int(at(deployment, "status", "updatedReplicas", default=0))
    everyone = int(at(deployment, "status", "replicas", default=0))
    name = name_of(deployment or {})
    if not asked:
        yield f"Deployment {name} has no pods"
    elif seen < int(at(deployment, "metadata", "generation", default=0)) or not updated == everyone == asked:
        yield f"Deployment {name} is not at rest: let its update finish, or take it back, first"
    elif side.deployed.ready < asked:
        yield f"{side.deployed.ready} of {asked} pods of Deployment {name} are ready"


def _of_its_scalers(side: DeploymentPlace, surge: int) -> Iterator[str]:
    ours = {(each["kind"], name_of(each)) for each in side.place.wanted}
    for each in side.scalers:
        told = f"{said(each)} scales {said(side.deployment or {})}"
        if each["kind"] == SCALED_OBJECTS.kind and not _rests(each):
            yield f"{told} up again from 0: pause it with the annotation {_PAUSED}=true"
        elif each["kind"] == HORIZONTAL_POD_AUTOSCALERS.kind and surge < side.wanted and not _by_keda(each, side):
            yield f"{told} while its pods move part by part: take it away, or bring room for all of them at once"
        if (each["kind"], name_of(each)) in ours:
            yield f"{told} and has the name of the delivery's own: give it another one, or leave out `fleet.autoscale`"


def _rests(scaled_object: Json) -> bool:
    said = at(scaled_object, "metadata", "annotations", default={})
    return said.get(_PAUSED) == "true" and _PAUSED_AT not in said


def _by_keda(scaler: Json, side: DeploymentPlace) -> bool:
    return any(owned_by(scaler, each) for each in side.scalers)


def _notes(side: DeploymentPlace, deployment: Json) -> Iterator[str]:
    subject = said(deployment)
    for each in side.scalers:
        if each["kind"] == HORIZONTAL_POD_AUTOSCALERS.kind and not _by_keda(each, side):
            yield f"{said(each)} rests while {subject} has no pods; `fleet.autoscale` scales the Rollout"
        elif each["kind"] == SCALED_OBJECTS.kind:
            yield f"{said(each)} stays paused until {subject} is given back: then take {_PAUSED} away"
    ours = {name_of(each) for each in side.place.wanted if each["kind"] == POD_DISRUPTION_BUDGETS.kind}
    for each in side.budgets:
        selects = matches(at(each, "spec", "selector", default={}), labels_of(deployment["spec"]["template"]))
        if selects and name_of(each) not in ours:
            yield (
                f"{said(each)} holds for the Rollout's pods too; the first delivery brings another one, and "
                "Kubernetes evicts no pod that has two: delete it before"
            )
