"""Others write a region back in the middle of a delivery: they are named, and users have engines all the while.

kubectl is real. Argo CD and Helm are not there: what they would send is sent by kubectl, under their field managers.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from cluster.bed import Bed
from cluster.delivered_model import DeliveredModel
from cluster.others import kubectl
from cluster.stories import UNGATED, Told, model_served, told_of
from e2e.machine import Command
from fakes.clusters.reverting import ARGO_CD, HELM, KUBECTL
from fakes.waiting import until

from pipelines.plan.region_objects import rendering
from pipelines.spec.delivery import Delivery
from registry.conventions import ENGINE_IMAGE
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import Engine
from tidegate.core.model import Json
from tidegate.core.spec import load_spec

PATIENT = [*UNGATED, {"canary": {"weights": [50], "at_least": "2m", "within": "15m", "gates": ["errors"]}}]
"""Users are on the canary for as long as somebody needs to write it back."""


def reverted(bed: Bed) -> Told:
    """Argo CD, kubectl and Helm, while engines start, with users on the canary, and in the bake."""
    model, first = model_served(bed, "reverted", stages=PATIENT)
    (region,) = model.regions
    git = _in_git(model, region, first)
    said = []
    with model.users():
        second = model.version()
        for manager, step, write in (
            (ARGO_CD, f"deploy@{region}", _server_side),
            (KUBECTL, f"canary@{region}/50", _client_side),
            (HELM, f"canary@{region}/50", _image_alone),
        ):
            said.append(_written_back(model, manager, step, lambda write=write: write(bed, region, git)))
            model.exactly(first)
        model.change(stages=list(UNGATED), regions={"waves": [[region]], "bake": "3m"})
        said.append(_written_back(model, ARGO_CD, "bake@1", lambda: _server_side(bed, region, git)))
        model.exactly(first)
    assert any(each.version == second for each in model.asked()), "no user met the canary"
    return told_of(model, "exit 4", note="; ".join(said))


def _written_back(model: DeliveredModel, manager: str, step: str, write: Callable[[], None]) -> str:
    running = model.deliver("--output", "json")
    model.reaches(step, running)
    if step.startswith("canary"):
        _users_are_on_it(model, running)
    write()
    done = running.finish()
    reason = model.delivery().reason or ""
    assert (done.code, model.delivery().outcome) == (4, "interrupted"), f"{done.out}\n{done.err}"
    assert manager in reason, reason
    return reason


def _users_are_on_it(model: DeliveredModel, running: Command) -> None:
    since, region = model.now(), model.regions[0]

    def met() -> bool:
        assert running.runs, running.finish()
        weight = model.region(region).weight
        return weight == 50 and any(each.started > since for each in model.asked(region))

    until("half of the users are on the canary", met)


def _in_git(model: DeliveredModel, region: str, version: str) -> list[Json]:
    """What a team commits: the objects of the version that serves, as they are rendered."""
    spec = load_spec(model.spec, Delivery)
    assert isinstance(spec.fleet, ArgoFleetSpec)
    found = model.registry.resolve(model.name, version)
    image = model.registry.tags(found)[ENGINE_IMAGE]
    engine = Engine(version=version, digest=found.digest, model=model.name, image=image)
    return list(rendering(spec, spec.fleet, region)(engine))


def _server_side(bed: Bed, region: str, git: list[Json]) -> None:
    """As a sync of Argo CD with `ServerSideApply=true` does."""
    words = ("apply", "--server-side", "--force-conflicts", f"--field-manager={ARGO_CD}", "-f", "-")
    kubectl(bed, region, *words, given=_listed(git))


def _client_side(bed: Bed, region: str, git: list[Json]) -> None:
    kubectl(bed, region, "apply", "-f", "-", given=_listed(git))


def _image_alone(bed: Bed, region: str, git: list[Json]) -> None:
    """As an upgrade by Helm 3 does after an image changed in the chart: the list of containers, and no label."""
    containers = git[-1]["spec"]["template"]["spec"]["containers"]
    patch = json.dumps({"spec": {"template": {"spec": {"containers": containers}}}})
    name = git[-1]["metadata"]["name"]
    kubectl(bed, region, "patch", f"rollouts/{name}", "--type=merge", f"--field-manager={HELM}", "-p", patch)


def _listed(git: list[Json]) -> str:
    return json.dumps({"kind": "List", "apiVersion": "v1", "items": git})


ALONE = {"reverted": reverted}
