"""A trial without a carrier: what rolls it back when nobody does, also after the region's API server was away."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import NamedTuple

from cluster.bed import Bed
from cluster.delivered_model import DeliveredModel
from cluster.stories import Told, told_of
from e2e.machine import Command
from fakes.waiting import until

from rollouts.cluster.carrier import read_lease
from rollouts.cluster.model import guard_note
from rollouts.kube.client import KubeClient
from rollouts.kube.resources import DEPLOYMENTS, LEASES, PODS, ROLLOUTS
from rollouts.manifests.conventions import GUARD, guard, lease
from rollouts.model import GuardRollback

PATIENT = ({"canary": {"weights": [50], "at_least": "8m", "within": "9m", "gates": ["latency", "errors"]}},)
"""No gate decides before the story is over."""
UNATTENDED_SECONDS = 45
PATIENCE_SECONDS = 25
TAKE_OVER_SECONDS = 300
"""After the Lease has run out, or the API server is back, for a broken product only."""


def carrier_killed(bed: Bed) -> Told:
    """`kill -9` of tidegate with half of the users on the canary: the guard rolls it back once the Lease allows."""
    model, first = _guarded(bed, "carrier-killed", list(bed.around.clusters)[-1])
    with model.users():
        second = model.version()
        running = model.deliver("--output", "json")
        model.users_are_on(second, model.regions[0], running)
        running.send(signal.SIGKILL)
        running.finish()
        allowed = _heard_of(bed, model) + UNATTENDED_SECONDS
        taken = _taken(bed, model)
        model.exactly(first)
        last = max(each.started for each in model.asked() if each.version == second)
        status = model.start("status", "delivery.yaml").finish()
        assert str(taken) in status.out, status.out
    took_over = taken.at.timestamp() - allowed
    # A Lease may tell whole seconds.
    assert took_over > -1, f"the guard took over {-took_over:.0f} s before the Lease had run out"
    note = f"the Lease had run out; the guard took over {took_over:.0f} s, users were back {last - allowed:.0f} s later"
    return told_of(model, "tidegate killed", note=note)


def region_back_without_carrier(bed: Bed) -> Told:
    """The API server is killed during the canary and comes back; tidegate was killed meanwhile."""
    model, running, seconds = _left_alone(bed, "unattended-killed", kill=True)
    assert not running.runs
    took_over = _taken(bed, model).at.timestamp() - seconds.returned
    note = f"the guard took over {took_over:.0f} s after the API server was back, {seconds}"
    return told_of(model, "tidegate killed", note=note)


def region_back_with_carrier(bed: Bed) -> Told:
    """The same, and tidegate lives: it gives the delivery up, and tries to take the region back."""
    model, running, seconds = _left_alone(bed, "unattended-alive", kill=False)
    done = running.finish()
    assert done.code == 4, f"{done.out}\n{done.err}"
    (region,) = model.regions
    whose = "the guard" if bed.ask(region, lambda client: _told(client, model.name)) else "the delivery itself"
    return told_of(model, f"exit {done.code}", note=f"{whose} rolled it back, {seconds}")


TOGETHER: dict[str, Callable[[Bed], Told]] = {"carrier_killed": carrier_killed}
ALONE: dict[str, Callable[[Bed], Told]] = {
    story.__name__: story for story in (region_back_without_carrier, region_back_with_carrier)
}


class Seconds(NamedTuple):
    """When the API server was back, and the last user who met the canary; Unix time."""

    returned: float
    last: float

    def __str__(self) -> str:
        """As the table has it."""
        return f"users were back {self.last - self.returned:.0f} s after it"


def _left_alone(bed: Bed, name: str, *, kill: bool) -> tuple[DeliveredModel, Command, Seconds]:
    """Half of the users on a version whose region is away for longer than its Lease allows, and then comes back."""
    region = list(bed.around.clusters)[-1]
    assert bed.around.clusters[region].stop, "that API server must not be stopped"
    model, first = _guarded(bed, name, region)
    with model.users():
        second = model.version()
        running = model.deliver("--output", "json")
        model.users_are_on(second, model.regions[0], running)
        bed.stop(region)
        try:
            if kill:
                running.send(signal.SIGKILL)
                running.finish()
            allowed = model.now() + UNATTENDED_SECONDS
            until("the Lease has run out", lambda: model.now() > allowed)
            assert max(each.started for each in model.asked() if each.version == second) > allowed - 5
        finally:
            bed.start(region)
        returned = model.now()
        try:
            model.exactly(first)
        finally:
            print(f"the guard of {name}: {_log(bed, model)}")
        last = max(each.started for each in model.asked() if each.version == second)
    late = f"a user met version {second} {last - returned:.0f} s after the API server was back"
    assert last - returned <= TAKE_OVER_SECONDS, late
    return model, running, Seconds(returned, last)


def _heard_of(bed: Bed, model: DeliveredModel) -> float:
    """When its carrier last renewed the Lease; Unix time."""
    (region,) = model.regions
    found = bed.ask(region, lambda client: client.get(LEASES, lease(model.name)))
    renewed = read_lease(found).renewed
    assert renewed, found
    return renewed.timestamp()


def _taken(bed: Bed, model: DeliveredModel) -> GuardRollback:
    """What the guard noted, once it is there."""
    (region,) = model.regions
    return bed.until("the guard leaves a note", region, lambda client: _told(client, model.name))


async def _told(client: KubeClient, name: str) -> GuardRollback | None:
    return guard_note(await client.get(ROLLOUTS, name))


def _log(bed: Bed, model: DeliveredModel) -> str:
    (region,) = model.regions
    (pod,) = bed.ask(region, lambda client: client.list(PODS, labels=f"{GUARD}={model.name}"))
    path = f"/api/v1/namespaces/{bed.namespace}/pods/{pod['metadata']['name']}/log"
    return bed.ask(region, lambda client: client.text(path))


def _guarded(bed: Bed, name: str, region: str) -> tuple[DeliveredModel, str]:
    """A model whose first version serves, with a guard that is ready."""
    model = DeliveredModel(bed, name, [[region]])
    unattended = {"guard": {"image": bed.toolchain}, "unattended": f"{UNATTENDED_SECONDS}s"}
    fleet = {**model.fleet(), **unattended}
    # All shorter than what the Lease allows, as a spec has to have it.
    patience = dict.fromkeys(("api", "metrics", "registry"), f"{PATIENCE_SECONDS}s")
    model.change(stages=list(PATIENT), fleet=fleet, patience=patience)
    first = model.version("champion")
    model.serve(first)

    async def ready(client: KubeClient) -> bool:
        found = await client.get(DEPLOYMENTS, guard(name))
        return bool((found.get("status") or {}).get("availableReplicas"))

    bed.until(f"the guard of {name} is ready", region, ready)
    return model, first
