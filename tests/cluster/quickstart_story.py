"""The cluster quickstart, typed by somebody who has a Rollout of `vllm/vllm-openai` and users on it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cluster.bed import Bed
from cluster.delivered_model import DeliveredModel
from cluster.engine.image import push_server
from cluster.helm_release import PODS_OF_HELM, HelmRelease, watched
from cluster.others import kubectl
from cluster.quickstart import Reader, steps_of
from cluster.stories import Told
from cluster.users import told

from tidegate.core.model import Json

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "start" / "cluster-quickstart.md"
NAME = "support-llm"
"""As the page calls Rollout, route, model and delivery; they are called so here too."""
CLAIM = "models"


@dataclass(frozen=True)
class VllmRelease(HelmRelease):
    """Of a chart that starts `vllm/vllm-openai` with arguments and weights on a claim, as vLLM's own does."""

    def _started(self) -> Json:
        weights = f"/models/{self.name}/1"
        return {
            "args": [f"--model={weights}", f"--served-model-name={self.name}", "--port=8000"],
            "volumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}],
        }

    def _volumes(self) -> list[Json]:
        return [{"name": "models", "persistentVolumeClaim": {"claimName": CLAIM}}]


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
        "eu-west-1": region,
        "serving": bed.namespace,
        "https://stable.support-llm.example.com": bed.forward(region, f"{NAME}-stable"),
        "https://canary.support-llm.example.com": bed.forward(region, f"{NAME}-canary"),
        "https://prometheus.eu-west-1.example.com": there.prometheus,
        "http://prometheus.monitoring.svc:9090": there.prometheus_inside,
        "examples/kubernetes/delivery.yaml --region eu-west-1": (
            f"{ROOT}/examples/kubernetes/delivery.yaml --region eu-west-1"
        ),
    }


def quickstart(bed: Bed) -> Told:
    """All of the page: adopted, one change of the engine delivered, a slow one taken back; no request fails."""
    region = next(iter(bed.around.clusters))
    model = DeliveredModel(bed, NAME, [[region]])
    weights = model.folder / "claim" / NAME / "1"
    weights.parent.mkdir(parents=True)
    model.export().rename(weights)
    model.spec.unlink()
    registry = bed.around.clusters[region].registry
    image = f"{registry}/vllm/vllm-openai:v0.32.0"
    push_server(bed.layout, bed.base, image)
    release = VllmRelease(bed, region, NAME, image)
    reader = Reader(model.folder, {**places(bed, region), "/mnt/models": str(model.folder / "claim")}, bed.environment)
    with claimed(bed, region, model.folder / "claim"):
        release.install()
        with watched(bed, region, NAME) as reached, model.users():
            reader.follow(tuple(steps_of(PAGE.read_text(encoding="utf-8"))))
        asked = model.asked()
        assert not any(each.failed for each in asked), told(asked)
        assert reached.fewest == PODS_OF_HELM, f"fewest endpoints {reached.fewest} in {reached.looks} looks"
        note = f"never fewer than {reached.fewest} endpoints in {reached.looks} looks"
        release.uninstall()
    return Told(ending="rolled-back, exit 1", users=told(asked), note=note)


ALONE = {"quickstart": quickstart}
