"""A region whose API server goes away during its canary and comes back: what takes it back when it has no carrier."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from cluster.bed import Bed
from cluster.delivered_model import DeliveredModel
from cluster.stories import Told, told_of
from e2e.machine import Command, until

from rollouts.kube.resources import DEPLOYMENTS, EVENTS, PODS
from rollouts.manifests.conventions import GUARD, guard
from tidegate.core.model import Json

PATIENT = ({"canary": {"weights": [50], "at_least": "8m", "within": "9m", "gates": ["latency", "errors"]}},)
"""No gate decides before the story is over."""
UNATTENDED_SECONDS = 120
PATIENCE_SECONDS = 25
AWAY_SECONDS = UNATTENDED_SECONDS + 15


def with_tidegate_killed(bed: Bed) -> Told:
    """The API server is killed during the canary and comes back; tidegate was killed meanwhile."""
    model, running, seconds = _left_alone(bed, "unattended-killed", kill=True)
    assert not running.runs
    event = until("the guard leaves an Event", lambda: _told(bed, model), seconds=60)
    status = model.start("status", "delivery.yaml").finish()
    assert event["message"] in status.out, status.out
    took_over = datetime.fromisoformat(event["firstTimestamp"]).timestamp() - seconds.returned
    note = f"the guard took over {took_over:.0f} s after the API server was back, {seconds}"
    return told_of(model, "tidegate killed", note=note)


def with_tidegate_alive(bed: Bed) -> Told:
    """The same, and tidegate lives: it gives the delivery up, and tries to take the region back."""
    model, running, seconds = _left_alone(bed, "unattended-alive", kill=False)
    done = running.finish()
    assert done.code == 4, f"{done.out}\n{done.err}"
    whose = "the guard" if _told(bed, model) else "the delivery itself"
    return told_of(model, f"exit {done.code}", note=f"{whose} took it back, {seconds}")


ALONE: dict[str, Callable[[Bed], Told]] = {
    story.__name__: story for story in (with_tidegate_killed, with_tidegate_alive)
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
        until("users meet the canary", lambda: running.runs and any(each.version == second for each in model.asked()))
        bed.stop(region)
        try:
            if kill:
                running.send(signal.SIGKILL)
                running.finish()
            time.sleep(AWAY_SECONDS)
            assert max(each.started for each in model.asked() if each.version == second) > model.now() - 5
        finally:
            bed.start(region)
        returned = model.now()
        try:
            until("there is no canary", lambda: model.region(region).canary is None, seconds=2 * UNATTENDED_SECONDS)
        finally:
            print(f"the guard of {name}: {_log(bed, model)}")
        model.exactly(first)
        last = max(each.started for each in model.asked() if each.version == second)
    late = f"a user met version {second} {last - returned:.0f} s after the API server was back"
    assert last - returned <= UNATTENDED_SECONDS, late
    return model, running, Seconds(returned, last)


def _told(bed: Bed, model: DeliveredModel) -> Json | None:
    """The guard's Event."""
    (region,) = model.regions
    found = bed.ask(region, lambda client: client.list(EVENTS, fields=f"involvedObject.name={model.name}"))
    return next((each for each in found.items if each["reason"] == "Unattended"), None)


def _log(bed: Bed, model: DeliveredModel) -> str:
    (region,) = model.regions
    (pod,) = bed.ask(region, lambda client: client.list(PODS, labels=f"{GUARD}={model.name}")).items
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

    def ready() -> bool:
        found = bed.ask(region, lambda client: client.get(DEPLOYMENTS, guard(name)))
        return bool((found.get("status") or {}).get("availableReplicas"))

    until(f"the guard of {name} is ready", ready, seconds=240)
    return model, first
