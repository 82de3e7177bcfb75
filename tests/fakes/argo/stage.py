"""A delivery's Rollout on stage in any cluster, and what deliveries rely on that a Rollouts controller does to it.

Told through a client: what people do, and what is then seen. The strategy, the Services and the route are tidegate's
own, as rendered; pods are ones that start at once. Inherit `ControllerContract` and bring the fixture `stage`: a
`Stage` whose version 1 was just applied. The controller in memory and the one next to a real API server
(`ControllerProcess`) keep it; a real one should.
"""

from __future__ import annotations

import asyncio
import copy
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Protocol

from fakes.clusters.region import a_fleet

from rollouts.argo import compare_and_set
from rollouts.argo.actions import RolloutClient
from rollouts.argo.model import Rollout
from rollouts.argo.state import phase_of
from rollouts.errors import Conflict
from rollouts.kube.client import KubeClient
from rollouts.kube.resources import CONFIG_MAPS, HTTP_ROUTES, PODS, REPLICA_SETS, ROLLOUTS, SERVICES
from rollouts.manifests.conventions import RenderPart
from rollouts.manifests.manifest import Release, ReleaseCandidate
from rollouts.manifests.render import render
from tidegate.core.clock import Clock
from tidegate.core.model import Json
from tidegate.core.names import POD_TEMPLATE_HASH, VERSION

REGION = "eu-west-1"
ENGINES = 2
ROLE = "tidegate.dev/role"
TRIAL = ReleaseCandidate(mirror=0, weights=(5, 50))
DEPLOYED, AT_5, AT_50, PAST_ALL = 1, 3, 5, 6
"""The steps at which it waits, and their number."""
_LOOK_SECONDS = 0.25


class Controller(Protocol):
    """Anyone who reconciles Rollouts, and what can be done to it."""

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
        self,
        client: KubeClient,
        clock: Clock,
        controller: Controller,
        *,
        name: str,
        image: str,
        patience_seconds: float,
    ) -> None:
        """`image` is one that runs without arguments until it is ended."""
        self.client = client
        self.name = name
        self.controller = controller
        self.acts = RolloutClient(client, clock, react_seconds=patience_seconds)
        self._clock = clock
        self._image = image
        self._patience_seconds = patience_seconds

    async def furnish(self) -> None:
        """The Services, the route, an analysis of every trial, and the Rollout with version 1."""
        fleet = a_fleet(REGION, replicas=ENGINES, namespace=self.client.namespace)
        release = Release(delivery=self.name, region=REGION, version="1", digest="1" * 64, image=self._image)
        rendered = render(fleet, release, trial=TRIAL, analyses=(_analysis(self.name),), parts=(RenderPart.SERVING,))
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

    async def undo(self, revision: int) -> None:
        """Its template again, as a delivery writes it."""
        while True:
            rollout = await self.client.get(ROLLOUTS, self.name)
            sets = (await self.client.list(REPLICA_SETS, labels=f"tidegate.dev/delivery={self.name}")).items
            try:
                for request in compare_and_set.undo(rollout, sets, revision):
                    await self.client.send(request)
            except Conflict:
                continue
            return

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


_REST_SECONDS = 1.0
"""Long enough for a controller that lives to have reacted."""


class ControllerContract:
    async def test_a_first_version_takes_no_steps(self, stage: Stage) -> None:
        seen = await stage.is_healthy_with("1")
        assert (seen.step, seen.canary, seen.ready("1")) == (PAST_ALL, "1", ENGINES)

    async def test_a_trial_waits_for_engines_first_and_then_at_each_weight(self, stage: Stage) -> None:
        before = await stage.is_healthy_with("1")
        await stage.deploy("2")
        seen = await stage.waits_at(DEPLOYED, weight=0)
        assert (seen.stable, seen.canary, seen.ready("2")) == ("1", "2", 1)
        assert seen.roles["2"] == {"canary"}
        await stage.acts.to_step(stage.name, DEPLOYED + 1)
        await stage.waits_at(AT_5, weight=5)
        await stage.acts.to_step(stage.name, AT_5 + 1)
        seen = await stage.waits_at(AT_50, weight=50)
        assert seen.pods["1"] == before.pods["1"]

    async def test_an_abort_gives_all_users_back(self, stage: Stage) -> None:
        await self._at_5(stage)
        await stage.acts.abort(stage.name)
        seen = await stage.until(lambda seen: seen.phase == "Degraded" and seen.weight == 0, "taken back")
        assert (seen.stable, seen.canary, seen.step) == ("1", "1", 0)
        assert seen.message.startswith("RolloutAborted") and seen.ready("1") == ENGINES

    async def test_what_was_promoted_is_the_stable_and_the_one_before_stays_warm(self, stage: Stage) -> None:
        before = await self._at_5(stage)
        await stage.acts.promote_full(stage.name)
        seen = await stage.is_healthy_with("2")
        assert (seen.step, seen.canary, seen.ready("2")) == (PAST_ALL, "2", ENGINES)
        assert seen.pods["1"] == before.pods["1"] and "stable" not in seen.roles["1"]

    async def test_going_back_to_a_warm_version_starts_nothing(self, stage: Stage) -> None:
        before = await self._at_5(stage)
        await stage.acts.promote_full(stage.name)
        promoted = await stage.is_healthy_with("2")
        await stage.undo(1)
        seen = await stage.is_healthy_with("1")
        assert (seen.pods["1"], seen.pods["2"]) == (before.pods["1"], promoted.pods["2"])

    async def test_what_was_said_while_the_controller_was_dead_is_done_when_it_lives(self, stage: Stage) -> None:
        before = await self._at_5(stage)
        await stage.controller.kill()
        await _say_abort(stage)
        seen = await stage.after(_REST_SECONDS)
        assert (seen.weight, seen.stable, seen.pods["1"]) == (5, "1", before.pods["1"])
        await stage.controller.start()
        seen = await stage.until(lambda seen: seen.phase == "Degraded" and seen.weight == 0, "taken back")
        assert (seen.pods["1"], seen.ready("2")) == (before.pods["1"], 1)

    async def test_a_plugin_that_does_not_start_leaves_weight_and_status_as_they_are(self, stage: Stage) -> None:
        await self._at_5(stage)
        await stage.controller.break_plugin(True)
        await _say_abort(stage)
        seen = await stage.after(_REST_SECONDS)
        assert (seen.weight, seen.phase) == (5, "Paused")
        await stage.controller.break_plugin(False)
        await stage.until(lambda seen: seen.phase == "Degraded" and seen.weight == 0, "taken back")

    async def test_a_failed_analysis_takes_the_trial_back(self, stage: Stage) -> None:
        await self._at_5(stage)
        await stage.controller.end_analyses("Failed")
        seen = await stage.until(lambda seen: seen.phase == "Degraded" and seen.weight == 0, "taken back")
        assert (seen.stable, seen.canary) == ("1", "1")

    async def _at_5(self, stage: Stage) -> Seen:
        await stage.is_healthy_with("1")
        await stage.deploy("2")
        await stage.waits_at(DEPLOYED, weight=0)
        await stage.acts.to_step(stage.name, DEPLOYED + 1)
        return await stage.waits_at(AT_5, weight=5)


async def _say_abort(stage: Stage) -> None:
    """As `kubectl argo rollouts abort`, which does not wait."""
    await stage.client.patch(ROLLOUTS, stage.name, {"status": {"abort": True}}, subresource="status")


TESTS = Path(__file__).parents[2]
SWITCHES = "rollouts-controller-switches"
_PATIENCE_SECONDS = 600.0
"""A deadline for a broken controller only: one on a busy machine takes a minute to begin."""


class ControllerProcess:
    """For one namespace. Anyone who starts it ends it, in any event loop."""

    def __init__(
        self, namespace: str, log: Path, *, context: str | None = None, kubeconfig: str | Path | None = None
    ) -> None:
        """`log` is a file; without `context` and `kubeconfig` those in use."""
        self._namespace = namespace
        self._log = log
        self._access = [f"--context={context}"] if context else []
        self._access += [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
        self._process: subprocess.Popen[str] | None = None

    @property
    def log(self) -> str:
        """What it complained of, all its lives together."""
        return self._log.read_text() if self._log.exists() else ""

    async def start(self) -> None:
        """Returns once it knows what is there."""
        arguments = [f"--namespace={self._namespace}", f"--control={self._namespace}/{SWITCHES}"]
        command = (sys.executable, "-m", "fakes.argo.process", *self._access, *arguments)
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=DEVNULL, stdout=PIPE, stderr=log, env=environment, cwd=TESTS.parent, text=True
            )
        assert self._process.stdout is not None
        # A process that ends says no line; one that hangs is ended, or its thread would wait for ever.
        hanging = threading.Timer(_PATIENCE_SECONDS, self._process.kill)
        hanging.start()
        try:
            line = await asyncio.to_thread(self._process.stdout.readline)
        finally:
            hanging.cancel()
        assert line.startswith("ready"), self.log

    @property
    def lives(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def kill(self) -> None:
        """As `kill -9`."""
        if self._process is not None and self.lives:
            self._process.kill()
            await self.ended()

    async def end(self) -> int | None:
        """In good order; its exit status, or None when it does not run."""
        if self._process is None or not self.lives:
            return None
        self._process.terminate()
        return await self.ended()

    async def ended(self) -> int:
        """Its exit status, once it has one."""
        assert self._process is not None and self._process.stdout is not None
        code = await asyncio.to_thread(self._process.wait, _PATIENCE_SECONDS)
        self._process.stdout.close()
        return code


class SeparateController:
    """A `fakes.argo.stage.Controller`: the process, and its switches in the cluster."""

    def __init__(self, process: ControllerProcess, client: KubeClient) -> None:
        self.process = process
        self._client = client

    async def kill(self) -> None:
        await self.process.kill()

    async def start(self) -> None:
        await self.process.start()

    async def break_plugin(self, broken: bool) -> None:
        await self._switch(plugin_broken=str(broken).lower())

    async def end_analyses(self, phase: str) -> None:
        await self._switch(analysis=phase)

    async def reset(self) -> None:
        """Nothing is wrong any more."""
        await self._switch(plugin_broken="false", analysis="Running")

    async def _switch(self, **values: str) -> None:
        metadata = {"name": SWITCHES, "namespace": self._client.namespace}
        body = {"apiVersion": "v1", "kind": CONFIG_MAPS.kind, "metadata": metadata, "data": values}
        await self._client.apply(body)
