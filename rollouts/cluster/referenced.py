"""The port `Fleet` on a Rollout of others: fields of their template, their steps, and nothing else of theirs."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

from rollouts.argo.actions import change, templates_match
from rollouts.argo.model import Rollout, pause_points
from rollouts.cluster.carrier import Carrier
from rollouts.cluster.fleet import ArgoFleet
from rollouts.cluster.model import RegionConfig, Revision, noted
from rollouts.cluster.peers import answers, doubts, has_pools
from rollouts.cluster.reference import (
    RegionNotes,
    field_patch,
    missing_fields,
    places,
    template_digest,
    wanted_fields,
    with_fields,
)
from rollouts.cluster.region import Served, refuse_misfits
from rollouts.cluster.snapshot import RegionSnapshot
from rollouts.errors import EngineDidNotStart, NotConfirmed, Unfit
from rollouts.kube.client import KubeClient
from rollouts.kube.resources import DEPLOYMENTS, INFERENCE_POOLS, ROLLOUTS
from rollouts.manifests.conventions import NOTES
from rollouts.manifests.theirs_spec import POD_HASH, RolloutReference
from rollouts.model import Engine, ForeignObject, RegionState
from tidegate.core.clock import Clock
from tidegate.core.model import Json, Value
from tidegate.core.names import POD_TEMPLATE_HASH
from tidegate.core.process import note

log = logging.getLogger(__name__)


class TrialNeeds(Value):
    """What a delivery's stages need of a Rollout's steps."""

    weights: tuple[int, ...] = ()
    """Of users, each to be judged."""
    dark: str = ""
    """What comes before any user: the stages that ask engines, or get copies; empty for none."""


class ReferencedFleet(ArgoFleet):
    """A `Fleet` of pods behind one Rollout that somebody else applies."""

    def __init__(
        self,
        config: RegionConfig,
        *,
        cluster: KubeClient,
        clock: Clock,
        needs: TrialNeeds | None = None,
        served: Served | None = None,
        scraped: Callable[[str], Awaitable[bool]] | None = None,
        carrier: Carrier | None = None,
        engines: Sequence[Engine] = (),
    ) -> None:
        """`scraped` tells whether a Prometheus has series of pods with a hash; None where nobody asks by hashes.
        `engines` are those that a plan knows: what serves now, and what is delivered.
        """
        assert config.theirs is not None, "a Rollout of others is named"
        self._theirs, self._needs, self._scraped, self._engines = config.theirs, needs or TrialNeeds(), scraped, engines
        super().__init__(config, cluster=cluster, clock=clock, served=served, carrier=carrier)
        self.series = {}

    async def foreign_objects(self) -> tuple[ForeignObject, ...]:
        """The Rollout or its route, where another delivery has it.

        Raises:
            Unfit: the Rollout is not as the spec says, or its steps are not what the stages need.
        """
        snapshot = await self._retries.run(self.look)
        refuse_misfits(self.region, misfits(snapshot, self._theirs, self._needs))
        for doubt in doubts(snapshot.route):
            note(f"{self.region}: {doubt}")
        if self._scraped and snapshot.stable and not await self._scraped(snapshot.stable.hash):
            raise Unfit(
                f"{self.region}: no series in Prometheus has {POD_HASH}={snapshot.stable.hash}, by which versions are "
                "told apart",
                hint=f"in the PodMonitor of its pods, under `spec`: `podTargetLabels: [{POD_HASH.replace('_', '-')}]`",
            )
        return snapshot.foreign_objects

    async def deploy(self, engine: Engine) -> RegionState:
        try:
            return await self._operate(lambda: self._deploy(engine))
        except EngineDidNotStart as error:
            await self._give_up(engine, error)
            raise

    async def look(self) -> RegionSnapshot:
        snapshot = await super().look()
        self.series = {each.version: each.hash for each in reversed(snapshot.revisions) if each.version}
        return snapshot

    async def _noted(self) -> RegionNotes:
        """With what the plan says of the versions, for a Rollout of which nothing was noted yet."""
        return (noted(RegionNotes, await self.fence.said(NOTES)) or RegionNotes()).knowing(self._theirs, *self._engines)

    async def _deploy(self, engine: Engine) -> RegionSnapshot:
        snapshot = await self._entered()
        asked = snapshot.asked[0] == engine.version and not snapshot.argo.aborted
        if not asked:
            await self._select(snapshot, self._theirs.stable_service, snapshot.stable)
            await self._change(snapshot, engine)
        what = f"version {engine.version}"

        def known(now: RegionSnapshot) -> bool:
            return any(each and each.version == engine.version for each in (now.stable, now.trial))

        # Before the first weight: by the hash, which its pods keep, and not by labels that change at a promotion.
        await self._select(await self._until(known, what), self._theirs.canary_service)
        return await self._until(lambda now: now.is_up(engine.version), what)

    async def _change(self, snapshot: RegionSnapshot, engine: Engine) -> None:
        theirs = self._theirs
        refuse_misfits(self.region, misfits(snapshot, theirs, self._needs))
        template = with_fields(snapshot.found["spec"]["template"], theirs, wanted_fields(theirs, engine))
        await self._note_way_back(snapshot.serving, engine.version)
        # The stable's too: whoever goes back needs nobody else to know it.
        await self._note(snapshot.notes.knowing(theirs, engine))
        await self._ask_again(await self.look(), template)
        log.info("%s: version %s was asked for", self.region, engine.version)

    async def _ask_again(self, snapshot: RegionSnapshot, template: Json) -> None:
        """Ask for that pod template: by the fields that say its version, where that is all."""
        theirs, rollout = self._theirs, snapshot.found
        now = rollout["spec"].get("template") or {}
        fields = {place.name: place.value for place in places(template, theirs)}
        wanted, operations = with_fields(now, theirs, fields), field_patch(now, theirs, fields)
        if not templates_match(wanted, template):
            wanted, operations = template, [{"op": "replace", "path": "/spec/template", "value": template}]
        # First: who reads it then knows whose the change is.
        await self._note(snapshot.notes.model_copy(update={"template": template_digest(wanted)}))
        resource, live = (DEPLOYMENTS, snapshot.workload) if snapshot.workload else (ROLLOUTS, rollout)
        await change(self._cluster, resource, live, operations)

    async def _note(self, notes: RegionNotes) -> None:
        """Remember it on the Lease."""
        await self.fence.note(NOTES, notes.model_dump_json(exclude_defaults=True))

    async def _note_previous(self, snapshot: RegionSnapshot, version: str | None) -> None:
        await self._note(snapshot.notes.model_copy(update={"previous": version or ""}))

    async def _promote(self) -> RegionSnapshot:
        """With pools the stable's has the new version's pods while the canary's still has everybody."""
        snapshot = await self._entered()
        if snapshot.trial and has_pools(snapshot.route):
            snapshot = await self._move_to(snapshot, pause_points(snapshot.argo.steps)[-1])
            if not snapshot.is_canary_down:
                await self._select(snapshot, self._theirs.stable_service, snapshot.trial)
        return await super()._promote()

    async def _restored(self, snapshot: RegionSnapshot, to: str) -> RegionSnapshot:
        await self._select(snapshot, self._theirs.stable_service, snapshot.warm.get(to))
        return await super()._restored(snapshot, to)

    async def _select(self, snapshot: RegionSnapshot, pool: str, which: Revision | None = None) -> None:
        """That InferencePool selects the pods of that revision, or of the trial; nothing where users reach Services."""
        which = which or snapshot.trial
        if which is None or not has_pools(snapshot.route):
            return
        found = await self._cluster.get(INFERENCE_POOLS, pool)
        if found["spec"]["selector"]["matchLabels"].get(POD_TEMPLATE_HASH) == which.hash:
            return
        if pool == self._theirs.stable_service and not which.available:
            raise NotConfirmed(f"{self.region}: no engine of version {which.version} is ready for InferencePool {pool}")
        version = {"resourceVersion": found["metadata"]["resourceVersion"]}
        selector = {"matchLabels": {POD_TEMPLATE_HASH: which.hash}}
        await self._cluster.patch(INFERENCE_POOLS, pool, {"metadata": version, "spec": {"selector": selector}})

    async def _settle(self) -> None:
        await super()._settle()
        await self._note((await self.look()).notes.model_copy(update={"template": ""}))

    async def _without_trial(self, snapshot: RegionSnapshot, stable: Revision) -> RegionSnapshot:
        if snapshot.foreign_change:
            log.warning("%s: left as it is: %s", self.region, snapshot.foreign_change.reason)
            return snapshot
        # Of a promotion that died halfway the stable's pool has the pods of the trial.
        back, _ = await asyncio.gather(
            super()._without_trial(snapshot, stable), self._select(snapshot, self._theirs.stable_service, stable)
        )
        return back

    async def _abort_at_once(self, to: str) -> None:
        if not (await self._looked()).foreign_change:
            await super()._abort_at_once(to)


def misfits(snapshot: RegionSnapshot, theirs: RolloutReference, needs: TrialNeeds) -> Iterator[str]:
    """Why their Rollout cannot be moved as the spec says, each with what makes it right, as a JSON patch where it can.

    What real controllers do with each: Argo Rollouts 1.9.1.
    """
    if snapshot.rollout is None:
        yield f"there is no Rollout {theirs.name}"
        return
    spec = snapshot.rollout.get("spec") or {}
    borrowed = spec.get("workloadRef") or {}
    if (borrowed.get("kind"), borrowed.get("name")) != (
        ("Deployment", theirs.workload) if theirs.workload else (None, None)
    ):
        whose = f"that of {borrowed.get('kind')} {borrowed.get('name')} (workloadRef)" if borrowed else "its own"
        yield f"its pod template is {whose}, and `fleet.rollout.workload` says {theirs.workload or 'nothing'}"
        return
    if theirs.workload and snapshot.workload is None:
        yield f"there is no Deployment {theirs.workload}"
        return
    if snapshot.route is None:
        yield f"there is no {snapshot.place.routes.resource.kind} {theirs.route}"
    yield from (why for _, why in answers(snapshot.route or {}) if why)
    if missing := missing_fields(spec.get("template") or {}, theirs):
        yield f"container {theirs.container} has not, or not once, {', '.join(missing)} of `fleet.rollout.set`"
    elif snapshot.stable and not snapshot.stable.version and snapshot.notes.versions:
        yield (
            f"what serves is no version that is known here: container {theirs.container} has other fields than "
            "`fleet.rollout.set` gives the champion"
        )
    canary = (spec.get("strategy") or {}).get("canary")
    if canary is None:
        yield "its strategy is not canary"
        return
    yield from _of_strategy(canary, theirs)
    if has_pools(snapshot.route):
        needs = needs.model_copy(update={"dark": needs.dark or "members of its InferencePool"})
        points, last = pause_points(snapshot.argo.steps), "/spec/strategy/canary/steps/-"
        if not points or points[-1].weight != 100:
            added = ", ".join((_patch("add", last, {"setWeight": 100}), _patch("add", last, {"pause": {}})))
            yield f"at a promotion an InferencePool is without members unless the canary has all users first: {added}"
    yield from _of_steps(snapshot.argo, needs)


def _of_strategy(canary: Json, theirs: RolloutReference) -> Iterator[str]:
    there = "/spec/strategy/canary"
    for key, name in (("stableService", theirs.stable_service), ("canaryService", theirs.canary_service)):
        if canary.get(key) != name:
            yield f"{key} is {canary.get(key) or 'nothing'}: {_patch('add', f'{there}/{key}', name)}"
    if (canary.get("trafficRouting") or {}).get("maxTrafficWeight") not in {None, 100}:
        yield f"its weights are no percentages: {_patch('remove', f'{there}/trafficRouting/maxTrafficWeight')}"
    if not canary.get("trafficRouting"):
        yield "it has no trafficRouting: the weights of its route are nobody's"
    if canary.get("dynamicStableScale"):
        # argo-rollouts#4898, #4841: until engines of the stable have started; for ever where the canary keeps its own.
        mended = _patch("remove", f"{there}/dynamicStableScale")
        yield f"dynamicStableScale leaves users on a canary that was aborted: {mended}"


def _of_steps(rollout: Rollout, needs: TrialNeeds) -> Iterator[str]:
    place, steps = "/spec/strategy/canary/steps", rollout.steps
    if rollout.spec.get("rollbackWindow"):
        # A version of before would come back past all steps, and no gate would see it.
        yield f"rollbackWindow: {_patch('remove', '/spec/rollbackWindow')}"
    for index, step in enumerate(steps):
        if (step.get("pause") or {}).get("duration"):
            yield f"step {index + 1} ends by itself: {_patch('replace', f'{place}/{index}', {'pause': {}})}"
        after = steps[index + 1] if index + 1 < len(steps) else {}
        if step.get("setWeight") is not None and "pause" not in after:
            yield f"nobody judges step {index + 1}: {_patch('add', f'{place}/{index + 1}', {'pause': {}})}"
    points = pause_points(steps)
    known = [point.weight for point in points]
    for weight in needs.weights:
        if weight not in known:
            there = ", ".join(f"{each} %" for each in known)
            yield f"no step has {weight} % of users; its steps have {there or 'none'}"
    if needs.dark and points and points[0].weight:
        first = {"setCanaryScale": {"replicas": 1}}
        yield (
            f"{needs.dark} come before users, and its first step has some: "
            f"{_patch('add', f'{place}/0', {'pause': {}})}, {_patch('add', f'{place}/0', first)}"
        )


def _patch(operation: str, path: str, value: object = None) -> str:
    said: Mapping[str, object] = {"op": operation, "path": path} | ({} if value is None else {"value": value})
    return json.dumps(said)
