"""Says a delivery's objects to its cluster, one after the other, so that nobody loses an engine by it.

What is somebody else's is not written to. A Service keeps as many engines as it selects. What was said before a
refusal is put back, and what cannot be is told.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from rollouts.cluster.claims import live_of, looked_at, refuse
from rollouts.cluster.fence import Fence
from rollouts.cluster.patience import Patience
from rollouts.cluster.place import Place
from rollouts.cluster.pods import is_ready
from rollouts.cluster.revisions import labelled
from rollouts.cluster.wanted import said_again, succeeding
from rollouts.errors import Conflict, FleetError, NotFound, NotPossible, WouldTakeDown
from rollouts.kube.model import Json, PatchKind
from rollouts.kube.ports import Cluster
from rollouts.kube.requests import MANAGER
from rollouts.kube.resources import PODS, ROLLOUTS, SERVICES, resource_of
from rollouts.manifests.belonging import last_writer, stranger
from tidegate.core.clock import Clock
from tidegate.core.errors import TidegateError

PUT_BACK_SECONDS = 60.0
"""How long a region that does not answer is asked to take something back."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Said:
    """One object that was sent, answered or not."""

    wanted: Json
    before: Json | None
    """As it was; None when it was not there."""

    @property
    def name(self) -> str:
        """Kind and name."""
        return f"{self.wanted['kind']} {self.wanted['metadata']['name']}"


class Applying:
    """The objects of one wish, until the Rollout is said, which is the last."""

    def __init__(self, place: Place, cluster: Cluster, clock: Clock, *, fence: Fence) -> None:
        self._place = place
        self._cluster = cluster
        self._fence = fence
        self._patience = Patience(clock, seconds=PUT_BACK_SECONDS)
        self._said: dict[str, Said] = {}

    async def apply(self, manifests: Sequence[Json]) -> None:
        """Say these objects, each onto what is there; all are looked at before the first is written.

        Raises:
            NotOurs: one of them is somebody else's.
            NotTheCarrier: another process carries the delivery here by now.
            WouldTakeDown: one is a Service, and would select fewer engines than it does.
            FleetError: one was refused, or nobody answered.
        """
        lives = await looked_at(self._cluster, manifests)
        refuse(self._place.region, *(stranger(live, self._place.name) for live in lives if live))
        for live in lives:
            self._fence.allows(live)
        pairs = [(said_again(each, live), live) for each, live in zip(manifests, lives, strict=True)]
        for wanted, live in pairs:
            if live is not None:
                await self._keep_engines(live, wanted)
        for wanted, live in pairs:
            self._note(wanted, live)
            after = await self._cluster.apply(wanted, force=live is not None)
            if live is None:
                await self._require_new(after)

    async def apply_rollout(self, rollout: Json, live: Json | None) -> None:
        """Say the Rollout, whole, onto the one that was looked at."""
        self._note(rollout, live)
        if live is None:
            await self._cluster.apply(rollout)
        else:
            await self._cluster.replace(ROLLOUTS, succeeding(rollout, live))

    def complete(self) -> None:
        """All of it is said, and stays."""
        self._said.clear()

    async def put_back(self, why: TidegateError) -> None:
        """Undo what was said, the last first, unless all of it was; the error says what could not be put back."""
        left: list[str] = []
        for said in reversed(self._said.values()):
            try:
                if await self._patience.keep(partial(self._back, said)):
                    return
            except FleetError as error:
                left.append(f"{said.name} ({error})")
        if left:
            told = f"could not be put back as it was: {', '.join(left)}"
            log.warning("%s: %s", self._place.region, told)
            why.hint = "; ".join(part for part in (why.hint, told) if part)

    async def _require_new(self, after: Json) -> None:
        """One that came about after the look is somebody's. Unforced, nothing of theirs was changed; ours goes again.

        Raises:
            Conflict: it did; whoever looks again learns whose it is.
        """
        if all(each.get("manager") == MANAGER for each in after["metadata"].get("managedFields") or []):
            return
        bare = {key: after[key] for key in ("apiVersion", "kind")}
        place = {key: after["metadata"][key] for key in ("name", "namespace") if key in after["metadata"]}
        # What a manager applies no more goes, and what others said stays.
        await self._cluster.apply({**bare, "metadata": place})
        raise Conflict(f"{after['kind']} {place['name']} came about meanwhile", status=409, reason="AlreadyExists")

    async def _back(self, said: Said) -> bool:
        """Put one object back; true when it shows that all was said although no answer came."""
        now = await live_of(self._cluster, said.wanted)
        if now is None or stranger(now, self._place.name):
            return False
        resource, name = resource_of(now), now["metadata"]["name"]
        if said.wanted["kind"] == ROLLOUTS.kind:
            return labelled(now["spec"].get("template") or {}) == labelled(said.wanted["spec"]["template"])
        if said.before is None:
            await self._delete(now)
        elif undone := _merge_patch(_ours(now), _ours(said.before)):
            if (writer := last_writer(now)) != MANAGER:
                raise NotPossible(f"written by {writer or 'somebody'} since")
            version = {"resourceVersion": now["metadata"]["resourceVersion"]}
            undone["metadata"] = {**undone.get("metadata", {}), **version}
            await self._cluster.patch(resource, name, undone, kind=PatchKind.MERGE)
        return False

    async def _delete(self, now: Json) -> None:
        try:
            await self._cluster.delete(resource_of(now), now["metadata"]["name"])
        except NotFound:
            return

    async def _keep_engines(self, live: Json, wanted: Json) -> None:
        if wanted["kind"] != SERVICES.kind:
            return
        old, new = (each["spec"].get("selector") or {} for each in (live, wanted))
        if not old or old == new:
            return
        has, would = await self._ready(old), await self._ready(new)
        if would < has:
            name = live["metadata"]["name"]
            raise WouldTakeDown(
                f"{self._place.region}: Service {name} selects {has} engines that are ready, and would select {would}",
                hint=f"its selector was changed by {last_writer(live) or 'somebody'} to {_written(old)}; nothing was "
                "written to it: restore the selector, or delete the Service once nobody needs it",
            )

    async def _ready(self, selector: Json) -> int:
        pods = await self._cluster.list(PODS, labels=_written(selector))
        return sum(is_ready(pod) for pod in pods.items)

    def _note(self, wanted: Json, live: Json | None) -> None:
        """Before it is sent: an answer that is lost leaves it done. Said again, the first look counts."""
        self._said.setdefault(f"{wanted['kind']}/{wanted['metadata']['name']}", Said(wanted, live))


def _written(selector: Json) -> str:
    return ",".join(f"{key}={value}" for key, value in selector.items())


def _ours(live: Json) -> Json:
    """What of an object a wish changes."""
    metadata = {key: live["metadata"].get(key) or {} for key in ("labels", "annotations")}
    return {"metadata": metadata, "spec": live.get("spec") or {}}


def _merge_patch(now: Json, before: Json) -> Json:
    """What makes `now` what it was before (RFC 7386)."""
    patch: Json = {key: None for key in now if key not in before}
    for key, value in before.items():
        if now.get(key) == value:
            continue
        both = isinstance(value, dict) and isinstance(now.get(key), dict)
        patch[key] = _merge_patch(now[key], value) if both else value
    return patch
