"""A delivery's Rollout on stage in any cluster, told through a client: what people do to it, and what is then seen.

The strategy, the Services and the route are tidegate's own, as rendered; pods are ones that start at once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fakes.cluster_region import a_fleet

from rollouts.argo.actions import Rollouts
from rollouts.argo.model import Rollout
from rollouts.argo.phase import phase_of
from rollouts.kube.model import Json
from rollouts.kube.ports import Cluster
from rollouts.kube.resources import HTTP_ROUTES, PODS, REPLICA_SETS, ROLLOUTS, SERVICES
from rollouts.manifests.conventions import POD_TEMPLATE_HASH, VERSION
from rollouts.manifests.parts import Part
from rollouts.manifests.release import Release, Trial
from rollouts.manifests.render import render
from tidegate.core.clock import Clock

REGION = "eu-west-1"
ENGINES = 2
ROLE = "tidegate.dev/role"
TRIAL = Trial(mirror=0, weights=(5, 50))
DEPLOYED, AT_5, AT_50, PAST_ALL = 1, 3, 5, 6
"""The steps at which it waits, and their number."""
_LOOK_SECONDS = 0.25


class Controller(Protocol):
    """Whoever reconciles Rollouts, and what can be done to it."""

    async def kill(self) -> None: ...

    async def start(self) -> None: ...

    async def break_plugin(self, broken: bool) -> None: ...

    async def end_analyses(self, phase: str) -> None: ...


@dataclass(frozen=True)
class Seen:
    """What the API's objects say."""

    phase: str
    message: str
    step: int
    weight: int
    """What the route gives the canary's Service."""
    stable: str
    """The version that the stable's Service selects; empty while it selects none in particular."""
    canary: str
    pods: dict[str, frozenset[str]]
    """By version the ids of pods that are ready and do not end."""
    roles: dict[str, frozenset[str]]
    """By version the roles that its pods are labelled with."""

    def ready(self, version: str) -> int:
        return len(self.pods.get(version, ()))


class Stage:
    """One Rollout in the client's namespace."""

    def __init__(
        self, client: Cluster, clock: Clock, controller: Controller, *, name: str, image: str, patience_seconds: float
    ) -> None:
        """`image` is one that runs without arguments until it is ended."""
        self.client = client
        self.name = name
        self.controller = controller
        self.acts = Rollouts(client, clock, react_seconds=patience_seconds)
        self._clock = clock
        self._image = image
        self._patience_seconds = patience_seconds

    async def furnish(self) -> None:
        """The Services, the route, an analysis of every trial, and the Rollout with version 1."""
        fleet = a_fleet(REGION, replicas=ENGINES, namespace=self.client.namespace)
        release = Release(delivery=self.name, region=REGION, version="1", digest="1" * 64, image=self._image)
        rendered = render(fleet, release, trial=TRIAL, analyses=(_analysis(self.name),), parts=(Part.SERVING,))
        wanted = ("Service", "HTTPRoute", "AnalysisTemplate", "Rollout")
        for body in (copy.deepcopy(one) for one in rendered if one["kind"] in wanted):
            if body["kind"] == "Rollout":
                self._plain_pods(body["spec"]["template"])
            await self.client.apply(body)

    async def deploy(self, version: str) -> None:
        """Another version into the Rollout, as a delivery writes it; never in the same second as the one before.

        `rollbackWindow` compares the ReplicaSets' times, which are whole seconds (`isRollbackWithinWindow`).
        """
        await self._clock.sleep(1)
        metadata = {"labels": {VERSION: version}}
        await self.client.patch(
            ROLLOUTS, self.name, {"metadata": metadata, "spec": {"template": {"metadata": metadata}}}
        )

    async def until(self, wanted: Callable[[Seen], bool], what: str) -> Seen:
        """What is seen once `wanted` holds.

        Raises:
            AssertionError: it did not in time; with what was seen last.
        """
        begun = self._clock.monotonic()
        while not wanted(seen := await self.seen()):
            if self._clock.monotonic() - begun > self._patience_seconds:
                raise AssertionError(f"not seen within {self._patience_seconds:g} s: {what}; but {seen}")
            await self._clock.sleep(_LOOK_SECONDS)
        return seen

    async def after(self, seconds: float) -> Seen:
        """What is seen when this long has passed."""
        await self._clock.sleep(seconds)
        return await self.seen()

    async def waits_at(self, step: int, *, weight: int) -> Seen:
        return await self.until(
            lambda seen: (seen.phase, seen.step, seen.weight) == ("Paused", step, weight),
            f"a pause at step {step} with {weight} %",
        )

    async def is_healthy_with(self, version: str) -> Seen:
        return await self.until(
            lambda seen: (
                (seen.phase, seen.stable, seen.weight) == ("Healthy", version, 0)
                and seen.roles.get(version) == {"stable"}
            ),
            f"healthy with version {version}",
        )

    async def seen(self) -> Seen:
        rollout = await self.client.get(ROLLOUTS, self.name)
        mine = f"tidegate.dev/delivery={self.name}"
        versions = {
            rs["metadata"]["labels"][POD_TEMPLATE_HASH]: rs["spec"]["template"]["metadata"]["labels"][VERSION]
            for rs in (await self.client.list(REPLICA_SETS, labels=mine)).items
        }
        pods = [pod for pod in (await self.client.list(PODS, labels=mine)).items if _serves(pod)]
        by_version = {
            version: [pod["metadata"] for pod in pods if _label(pod, VERSION) == version]
            for version in versions.values()
        }
        phase = phase_of(rollout)
        return Seen(
            phase=str(phase.phase),
            message=phase.message,
            step=Rollout(rollout).step_index,
            weight=await self._weight(),
            stable=versions.get(await self._selected("stable"), ""),
            canary=versions.get(await self._selected("canary"), ""),
            pods={version: frozenset(one["uid"] for one in found) for version, found in by_version.items() if found},
            roles={
                version: frozenset(one["labels"].get(ROLE, "") for one in found)
                for version, found in by_version.items()
                if found
            },
        )

    async def _weight(self) -> int:
        route = await self.client.get(HTTP_ROUTES, self.name)
        shares = {one["name"]: one["weight"] for one in route["spec"]["rules"][0]["backendRefs"]}
        assert sum(shares.values()) == 100, shares
        return int(shares[f"{self.name}-canary"])

    async def _selected(self, arm: str) -> str:
        service = await self.client.get(SERVICES, f"{self.name}-{arm}")
        return str(service["spec"]["selector"].get(POD_TEMPLATE_HASH, ""))

    def _plain_pods(self, template: Json) -> None:
        """Without what belongs to an engine: GPUs, probes, memory, an account."""
        ports = [{"name": "http", "containerPort": 8000, "protocol": "TCP"}]
        container = {"name": "engine", "image": self._image, "imagePullPolicy": "IfNotPresent", "ports": ports}
        template["spec"] = {"containers": [container], "terminationGracePeriodSeconds": 1}


def _label(pod: Json, key: str) -> str:
    return str(pod["metadata"]["labels"].get(key, ""))


def _serves(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions", ())
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def _analysis(name: str) -> Json:
    """Of nothing: who reconciles it is told how it ends."""
    prometheus = {"address": "http://prometheus.invalid", "query": "up"}
    metric = {"name": "up", "interval": "1m", "failureLimit": 1, "provider": {"prometheus": prometheus}}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "AnalysisTemplate",
        "metadata": {"name": name},
        "spec": {"metrics": [metric]},
    }
