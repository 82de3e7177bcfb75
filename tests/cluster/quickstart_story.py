"""The cluster quickstart, typed by somebody who has a Rollout of `vllm/vllm-openai` and users on it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cluster.bed import Bed
from cluster.delivered_model import DeliveredModel
from cluster.endpoints import Endpoints
from cluster.engine.image import push_server
from cluster.others import kubectl
from cluster.quickstart import Reader, steps_of
from cluster.stories import Told
from cluster.their_rollout import CLAIM, PODS_OF_THEIRS, TheirRollout, watched
from cluster.users import told

from tidegate.core.model import Json

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "start" / "cluster-quickstart.md"
NAME = "support-llm"
"""As the page calls Rollout, route, model and delivery; they are called so here too."""


@contextmanager
def claimed(bed: Bed, region: str, folder: Path) -> Iterator[None]:
    """A claim with the files of a folder, which the one node has too."""
    name = f"{bed.namespace}-{CLAIM}"
    common: Json = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    volume: Json = {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {**common, "capacity": {"storage": "1Gi"}, "hostPath": {"path": str(folder)}},
    }  # fmt: skip
    claim: Json = {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM},
        "spec": {**common, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}},
    }  # fmt: skip
    items = {"kind": "List", "apiVersion": "v1", "items": [volume, claim]}
    kubectl(bed, region, "apply", "-f", "-", given=json.dumps(items))
    try:
        yield
    finally:
        kubectl(bed, region, "delete", "--wait=false", f"pvc/{CLAIM}", f"pv/{name}")


def places(bed: Bed, region: str) -> Mapping[str, str]:
    """The whole difference between the page and this test: addresses, and names of a cluster and a namespace."""
    there = bed.around.clusters[region]
    return {
        "https://mlflow.example.com": bed.tracking_uri,
        "prod-eu-west-1": there.context,
        "serving": bed.namespace,
        "https://prometheus.eu-west-1.example.com": there.prometheus,
    }


def exported(model: DeliveredModel, number: int, **ways: object) -> Path:
    """A folder with one version's files, which behaves so."""
    folder = model.folder / "claim" / NAME / str(number)
    folder.parent.mkdir(parents=True, exist_ok=True)
    model.export().rename(folder)
    if ways:
        (folder / "standin.json").write_text(json.dumps(ways))
    return folder


@contextmanager
def their_rollout(
    bed: Bed, region: str, model: DeliveredModel, workload: str = "", kind: type[TheirRollout] = TheirRollout
) -> Iterator[TheirRollout]:
    """What a team has, which serves version 1; versions 2 (as good) and 3 (late) lie on its claim."""
    exported(model, 1)
    exported(model, 2)
    exported(model, 3, ttft=0.12)
    registry = bed.around.clusters[region].registry
    image = f"{registry}/vllm/vllm-openai:v0.32.0"
    push_server(bed.layout, bed.base, image)
    theirs = kind(bed, region, NAME, image, workload)
    with claimed(bed, region, model.folder / "claim"):
        theirs.install()
        yield theirs
        theirs.uninstall()


@contextmanager
def unharmed(bed: Bed, region: str, model: DeliveredModel, **pace: float) -> Iterator[Endpoints]:
    """Users ask while the block lasts; none of their requests fails, and they never reach fewer pods."""
    with watched(bed, region, NAME) as reached, model.users(**pace):
        yield reached
    asked = model.asked()
    assert not any(each.failed for each in asked), told(asked)
    assert reached.fewest and reached.fewest >= PODS_OF_THEIRS, f"fewest endpoints {reached.fewest}"


def quickstart(bed: Bed) -> Told:
    """All of the page: one version delivered, a late one rolled back; no request fails."""
    region = next(iter(bed.around.clusters))
    model = DeliveredModel(bed, NAME, [[region]])
    model.spec.unlink()
    reader = Reader(model.folder, {**places(bed, region), "/mnt/models": str(model.folder / "claim")}, bed.environment)
    with their_rollout(bed, region, model) as theirs:
        with unharmed(bed, region, model) as reached:
            reader.follow(tuple(steps_of(PAGE.read_text(encoding="utf-8"))))
        note = f"never fewer than {reached.fewest} endpoints in {reached.looks} looks"
        assert set(theirs.template()["metadata"]) <= {"labels", "creationTimestamp"}, "nothing is added"
    return Told(ending="rolled-back, exit 1", users=told(model.asked()), note=note)


ALONE = {"quickstart": quickstart}
