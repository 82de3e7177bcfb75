"""A team's own Rollout by reference, with users on it all the while: killed, without a controller, and written back."""

from __future__ import annotations

import asyncio
import copy
import json
import signal
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import yaml
from cluster.bed import Bed
from cluster.delivered_model import DeliveredModel
from cluster.others import kubeconfig_of, kubectl
from cluster.pool_gateway import DEFINITION, GATEWAY, pool_gateway
from cluster.quickstart_story import NAME, their_rollout, unharmed
from cluster.stories import BACK_SECONDS, UNGATED, Told, delivers
from cluster.their_rollout import TheirBackends, TheirPools
from cluster.users import told
from cluster.worker_sets import ENGINE, TheirSets, groups_made
from e2e.machine import Command
from fakes.waiting import until

from rollouts.kube.resources import DEPLOYMENTS, INFERENCE_POOLS, LEADER_WORKER_SETS
from rollouts.manifests.conventions import driver
from tidegate.core.model import Json


def by_reference(workload: str) -> Json:
    """As `init --from-rollout` and the quickstart have it."""
    rollout = {"name": NAME, "container": "vllm", "route": NAME}
    rollout |= {"workload": workload} if workload else {}
    rollout |= {"stable_service": f"{NAME}-stable", "canary_service": f"{NAME}-canary"}
    return {"kind": "argo", "rollout": rollout | {"set": {"args": {"--model": f"/models/{NAME}/{{version}}"}}}}


def two_backends(engine: str = "/spec/template/spec/containers/0", kind: str = DEPLOYMENTS.kind) -> Json:
    """Of one HTTPRoute, with a workload each, which has its container at that pointer."""
    weights = {f"{engine}/args/0": f"--model=/models/{NAME}/{{version}}"}
    peers = {
        peer: {
            "backend": f"{NAME}-{peer}",
            "series": f"{NAME}-{peer}",
            "workload": {"kind": kind, "name": f"{NAME}-{peer}", "set": weights},
        }
        for peer in ("blue", "green")
    }
    return {"kind": "route", "route": NAME, "label": "app", "peers": peers}


def spec_of(bed: Bed, region: str, image: str, fleet: Json) -> Json:
    """A delivery at two weights."""
    there = bed.around.clusters[region]
    place = {"context": there.context, "entry": f"http://{NAME}.example", "prometheus": there.prometheus}
    return {
        "apiVersion": "tidegate/v1",
        "kind": "Delivery",
        "metadata": {"name": NAME},
        "model": {"name": NAME},
        "engine": {"image": {"reference": image, "by_tag": True}, "vllm": {"version": "0.32.0"}},
        "gates": {
            "latency": {"metric": "ttft", "quantile": 0.5, "max_increase": "50%"},
            "errors": {"max_increase": "2pp"},
        },
        "stages": [{"canary": {"weights": [10, 50], "within": "30m", "gates": ["latency", "errors"]}}],
        "regions": {"waves": [[region]], "bake": "1s"},
        "traffic": {"requests_per_second": 20},
        "metrics": {"scrape_interval": "5s"},
        "fleet": {**fleet, "namespace": bed.namespace, "regions": {region: place}},
    }


def referenced(bed: Bed, workload: str = "") -> Told:
    """With the rights alone that are rendered. Killed (-9) with users on the canary, and resumed: delivered.

    A late version while the controller is dead: all users go back. The team applies its manifest in the middle:
    interrupted, and what it asked for stays.
    """
    region = next(iter(bed.around.clusters))
    with bed.apart(workload or "referenced", ledger=True) as regions:
        model = DeliveredModel(regions, NAME, [[region]])
        with their_rollout(regions, region, model, workload) as theirs:
            model.spec.write_text(yaml.safe_dump(spec_of(regions, region, theirs.image, by_reference(workload))))
            registered(model, 1, "champion")
            registered(model, 2, "challenger")
            model.bed = with_the_role_alone(regions, model, region)
            with unharmed(regions, region, model) as reached:
                killed_and_resumed(model, region)
                seconds = without_a_controller(model, region)
                # Of all at once the delivery would tell of the route, where it looks between the two writes.
                written_back(
                    model, region, lambda: theirs.apply("2", "Rollout", "Deployment"), "asks for version 2 again"
                )
                assert "--model=/models/support-llm/2" in theirs.template()["spec"]["containers"][0]["args"]
    note = f"last user {seconds:+.2f} s from the command; never fewer than {reached.fewest} endpoints"
    return Told(ending="delivered, rolled-back, interrupted", users=told(model.asked()), note=note)


def with_the_role_alone(bed: Bed, model: DeliveredModel, region: str) -> Bed:
    """The same for commands that have the token of the service account whose Role `rollout render` prints."""
    rendered = model.start("rollout", "render", "delivery.yaml").finish().out
    kubectl(bed, region, "apply", "-f", "-", given=rendered)
    limited = copy.copy(bed)
    limited.kubeconfig = kubeconfig_of(bed, region, driver(NAME), model.folder / "role.yaml")
    return limited


def registered(model: DeliveredModel, number: int, alias: str) -> None:
    folder = model.folder / "claim" / NAME / str(number)
    done = model.start("model", "add", NAME, str(folder), "--alias", alias).finish()
    assert done.code == 0, done.err


def killed_and_resumed(model: DeliveredModel, region: str) -> None:
    running = model.deliver()
    model.reaches(f"canary@{region}/50", running)
    running.send(signal.SIGKILL)
    running.finish()
    done = model.start("resume", model.delivery().id, "--output", "json").finish()
    assert (done.code, json.loads(done.out)["ending"]) == (0, "delivered"), done.err


def without_a_controller(model: DeliveredModel, region: str) -> float:
    """As `rolled_back`, and the Rollouts controller dies first."""
    registered(model, 3, "challenger")
    running = model.deliver()
    model.reaches(f"canary@{region}/10", running)
    asyncio.run(model.bed.controllers[region].kill())
    seconds = rolled_back(model, running)
    asyncio.run(model.bed.controllers[region].start())
    again = model.start("rollback", "delivery.yaml").finish()
    assert (again.code, "version 2" in again.out) == (0, True), f"{again.out}\n{again.err}"
    return seconds


def rolled_back(model: DeliveredModel, running: Command) -> float:
    """Killed; seconds from the command `rollback` to the last request that began on version 3."""
    running.send(signal.SIGKILL)
    running.finish()
    typed = model.now()
    back = model.start("rollback", "delivery.yaml").finish()
    seconds = max((one.started for one in model.asked() if one.version == "3"), default=typed) - typed
    assert seconds <= BACK_SECONDS, f"a user met version 3 {seconds:.2f} s after the command: {back.err}"
    return seconds


def written_back(model: DeliveredModel, region: str, write: Callable[[], None], told: str) -> None:
    """Interrupted by others; `told` is in the reason."""
    running = model.deliver("--output", "json")
    model.reaches(f"canary@{region}/10", running)
    write()
    done = running.finish()
    assert (done.code, model.delivery().outcome) == (4, "interrupted"), f"{done.out}\n{done.err}"
    assert told in (model.delivery().reason or ""), model.delivery().reason


def routed(bed: Bed, *, sets: bool = False) -> Told:
    """The same with two backends of one HTTPRoute; a late version is rolled back by the gates, and once by hand.

    Engines are of Deployments, or of LeaderWorkerSets. A golden set is asked before users, through the API server.
    """
    region = next(iter(bed.around.clusters))
    kind, fleet = TheirBackends, two_backends()
    with bed.apart("sets" if sets else "routed", ledger=True) as regions, ExitStack() as stack:
        if sets:
            kind, fleet = TheirSets, two_backends(ENGINE, LEADER_WORKER_SETS.kind)
            stack.enter_context(groups_made(regions, region))
        model = DeliveredModel(regions, NAME, [[region]])
        with their_rollout(regions, region, model, kind=kind) as theirs:
            spec = spec_of(regions, region, theirs.image, fleet)
            spec["stages"] = [*UNGATED, *spec["stages"]]
            spec["gates"]["quality"] = {"scorer": "contains", "max_drop": 0.3, "min_prompts": 10}
            model.spec.write_text(yaml.safe_dump(spec))
            registered(model, 1, "champion")
            registered(model, 2, "challenger")
            model.bed = with_the_role_alone(regions, model, region)
            with unharmed(regions, region, model) as reached:
                killed_and_resumed(model, region)
                registered(model, 3, "challenger")
                delivers(model, 1, "rolled-back")
                begun, running = model.now(), model.deliver()
                until("users meet it", lambda: any(one.version == "3" for one in model.asked() if one.started > begun))
                seconds = rolled_back(model, running)
                written_back(model, region, lambda: theirs.apply("1", "HTTPRoute"), "wrote the backends of HTTPRoute")
    note = f"last user {seconds:+.2f} s from the command; never fewer than {reached.fewest} endpoints"
    return Told(ending="delivered, rolled-back twice, interrupted", users=told(model.asked()), note=note)


def pooled(bed: Bed) -> Told:
    """With two InferencePools: refused where no gateway takes them, delivered and rolled back where one does."""
    region = next(iter(bed.around.clusters))
    pools = [f"{NAME}-{peer}" for peer in ("blue", "green")]
    if not kubectl(
        bed, region, "get", "--ignore-not-found", "-o", "name", f"crd/{INFERENCE_POOLS.plural}.{INFERENCE_POOLS.group}"
    ):
        kubectl(bed, region, "apply", "-f", "-", given=DEFINITION)
    with bed.apart("pooled", ledger=True) as regions:
        model = DeliveredModel(regions, NAME, [[region]])
        with their_rollout(regions, region, model, kind=TheirPools) as theirs:
            fleet = two_backends()
            fleet["peers"] = {name: each | {"kind": "InferencePool"} for name, each in fleet["peers"].items()}
            model.spec.write_text(yaml.safe_dump(spec_of(regions, region, theirs.image, fleet)))
            registered(model, 1, "champion")
            registered(model, 2, "challenger")
            until("the gateway has said no", lambda: "InvalidKind" in model.start("plan", "delivery.yaml").finish().out)
            replace(theirs, gateway={"name": GATEWAY}).apply("1", "HTTPRoute")
            model.bed = with_the_role_alone(regions, model, region)
            with pool_gateway(regions, region, NAME, pools, regions.folder / "envoy") as entry:
                model.bed.entries = {region: entry}
                with unharmed(regions, region, model) as reached:
                    killed_and_resumed(model, region)
                    registered(model, 3, "challenger")
                    delivers(model, 1, "rolled-back")
    note = f"refused by plan before; never fewer than {reached.fewest} endpoints"
    return Told(ending="delivered, rolled-back", users=told(model.asked()), note=note)


ALONE = {
    "routed": routed,
    "sets": partial(routed, sets=True),
    "pooled": pooled,
    "referenced": referenced,
    "workload": partial(referenced, workload=f"{NAME}-engines"),
}
