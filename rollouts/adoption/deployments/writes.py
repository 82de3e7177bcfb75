"""The writes that a Deployment costs besides those of a Rollout's adoption: the Rollout, and numbers of pods. Pure.

The Rollout is plain at first, as one of theirs would be: the Deployment's selector and pod template, no steps, no
traffic. So it is adopted as theirs are, and what it was before is what it is given back to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy

from rollouts.adoption.deployments.model import REPLICAS, ROLLOUT, DeploymentPlace
from rollouts.adoption.giveback import last_to_go
from rollouts.adoption.model import AdoptedVersion, Place, Verb, Write
from rollouts.adoption.takeover import takeover
from rollouts.kube.objects import at, labels_of, name_of, said
from rollouts.kube.pods import is_pod_ready
from rollouts.kube.resources import PODS, REPLICA_SETS, ROLLOUTS
from rollouts.manifests.conventions import BEFORE_ADOPTION, MADE_FOR
from tidegate.core.model import Json
from tidegate.core.names import MANAGED_BY, POD_TEMPLATE_HASH

_SAME = ("minReadySeconds", "progressDeadlineSeconds", "selector", "template")
"""Fields that a Rollout's spec shares with a Deployment's."""
_EXPECTED = "expected"
"""Stands for the hash that Argo Rollouts gives the ReplicaSet to come."""


def rollout_like(deployment: Json, name: str, replicas: int) -> Json:
    """A Rollout with the very pods of the Deployment."""
    theirs = deepcopy(deployment["spec"])
    metadata = {
        "name": name,
        "namespace": deployment["metadata"]["namespace"],
        "labels": dict(MANAGED_BY),
        "annotations": {MADE_FOR: name_of(deployment)},
    }
    same = {key: theirs[key] for key in _SAME if key in theirs}
    spec = {"replicas": replicas, **same, "strategy": {"canary": {}}}
    return {"apiVersion": ROLLOUTS.api_version, "kind": ROLLOUTS.kind, "metadata": metadata, "spec": spec}


def made(side: DeploymentPlace, delivery: str, replicas: int) -> Write:
    """The Rollout, where there is none."""
    assert side.deployment is not None, "a Rollout is made for a Deployment"
    body = rollout_like(side.deployment, delivery, replicas)
    same = f"is made next to {said(side.deployment)}, with the same pod template"
    return Write(said(body), f"{same}; {replicas} of {side.wanted} pods start", Verb.CREATE, body, body)


def scaled(side: DeploymentPlace, live: Json, replicas: int) -> Write:
    """Another number of pods for the Rollout or for the Deployment, where what it gets back is noted."""
    metadata: Json = {}
    if live is side.deployment:
        delivery = name_of(side.place.wanted[-1])
        note = json.dumps({REPLICAS: side.wanted, ROLLOUT: delivery}, sort_keys=True)
        metadata = {"annotations": {BEFORE_ADOPTION: note}}
    what = _told(replicas, at(live, "spec", "replicas", default=1), side.wanted)
    return Write(said(live), what, Verb.PATCH, live, {"metadata": metadata, "spec": {"replicas": replicas}})


def _told(replicas: int, before: int, wanted: int) -> str:
    if replicas > before:
        return f"gets {replicas} of {wanted} pods"
    return (
        f"keeps {replicas} of its {before} pods" if replicas else f"has no pods any more; the {wanted} it had are noted"
    )


def ended(side: DeploymentPlace) -> Iterator[Write]:
    """The Rollout goes once the Deployment serves, then what nobody is led to any more, then the Deployment's note."""
    if side.rollout is not None and side.is_made:
        yield Write(said(side.rollout), "was made by the adoption, and goes", Verb.DELETE, side.rollout, side.rollout)
    yield from last_to_go(side.place, name_of(side.place.wanted[-1]))
    if side.deployment is not None and side.noted is not None:
        bare = {"metadata": {"annotations": {BEFORE_ADOPTION: None}}}
        yield Write(said(side.deployment), "is as it was", Verb.PATCH, side.deployment, bare)


def planned(side: DeploymentPlace, who: AdoptedVersion, surge: int) -> tuple[Write, ...]:
    """All writes of an adoption, or what is left of them, as far as they are known before the pods are there."""
    deployment = side.deployment
    if deployment is None:
        return tuple(takeover(side.place, who))
    return (*_until_whole(side, who, surge), *_taking_over(side, who), *_emptied(side))


def planned_back(side: DeploymentPlace, surge: int) -> tuple[Write, ...]:
    """What brings the Deployment's pods back; none where they are there."""
    deployment = side.deployment
    if deployment is None or side.deployed.replicas >= side.wanted:
        return ()
    write = scaled(side, deployment, side.wanted)
    return (_in_parts(write, surge, side.wanted),)


def _until_whole(side: DeploymentPlace, who: AdoptedVersion, surge: int) -> Iterator[Write]:
    if side.rollout is None:
        yield _in_parts(made(side, who.delivery, side.wanted), surge, side.wanted)
    elif side.rolled.replicas < side.wanted:
        yield _in_parts(scaled(side, side.rollout, side.wanted), surge, side.wanted)


def _in_parts(write: Write, surge: int, wanted: int) -> Write:
    if surge >= wanted:
        return write
    what = f"{write.what}, {surge} at a time, and as many of the other's pods end"
    return Write(write.subject, what, write.verb, write.live, write.body)


def _taking_over(side: DeploymentPlace, who: AdoptedVersion) -> Iterator[Write]:
    if side.is_ours:
        return
    place = expected_place(side, who.delivery)
    told = False
    for write in takeover(place, who):
        if write.live["kind"] not in {PODS.kind, REPLICA_SETS.kind}:
            yield write
        elif not told:
            told = True
            what = f"get the labels of version {who.version}; none is started by that"
            yield Write(f"pods of Rollout {who.delivery}", what, Verb.PATCH, write.live, write.body)


def _emptied(side: DeploymentPlace) -> Iterator[Write]:
    if side.deployment is not None and side.deployed.replicas:
        yield scaled(side, side.deployment, 0)


def expected_place(side: DeploymentPlace, delivery: str) -> Place:
    """The region as it will be once the Rollout has all the pods: what an adoption would meet then."""
    assert side.deployment is not None, "a Rollout is expected for a Deployment"
    template = side.deployment["spec"]["template"]
    label = {POD_TEMPLATE_HASH: _EXPECTED}
    rollout = rollout_like(side.deployment, delivery, side.wanted)
    rollout["status"] = {"stableRS": _EXPECTED, "currentPodHash": _EXPECTED}
    replica_set = {
        "kind": REPLICA_SETS.kind,
        "metadata": {"name": f"{delivery}-{_EXPECTED}", "labels": label},
        "spec": {"template": template},
    }
    ready = [pod for pod in side.pods if is_pod_ready(pod)]
    pods = [{**pod, "metadata": {**pod["metadata"], "labels": {**labels_of(pod), **label}}} for pod in ready]
    return Place(
        wanted=side.place.wanted,
        lives=[*side.place.lives[:-1], rollout],
        replica_sets=[replica_set],
        pods=pods,
        services=side.place.services,
        policies=side.place.policies,
        lease=side.place.lease,
    )
