"""What another team runs in a region under the names of a delivery, made by kubectl alone."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from cluster.bed import GATEWAY, Bed
from fakes.clusters.region import PODS_OF_OTHERS, a_release
from fakes.waiting import until

from rollouts.kube.resources import NODES
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY

WRITER = "kubectl-client-side-apply"
"""The field manager of `kubectl apply` in managedFields."""
OF_THE_CLUSTER = ("events", "events.events.k8s.io")
"""Kinds that are written by themselves as time passes."""


@dataclass(frozen=True)
class Others:
    """A Rollout, two Services and a route."""

    bed: Bed
    region: str
    name: str

    def move_in(self) -> None:
        """Apply them, and wait until their pods serve and nothing changes any more."""
        nodes = self.bed.ask(self.region, lambda client: client.list(NODES))
        bodies = [self._plain(body, _pause_image(nodes)) for body in a_release(self.name, self.bed.namespace)]
        said = self.kubectl("apply", "-f", "-", given=json.dumps({"kind": "List", "apiVersion": "v1", "items": bodies}))
        assert said.count("created") == len(bodies), said
        until("the others' pods are ready", lambda: self.ready() == PODS_OF_OTHERS)
        seen = [self.objects()]

        def settled() -> bool:
            seen.append(self.objects())
            return seen[-1] == seen[-2]

        until("nothing changes any more", settled)

    def move_out(self) -> None:
        """Take all of it away."""
        services = [f"services/{self.name}-{arm}" for arm in ("stable", "canary")]
        self.kubectl("delete", f"rollouts/{self.name}", f"httproutes/{self.name}", *services)

    def ready(self) -> int:
        """Ready endpoints of the Service that users reach."""
        chosen = f"kubernetes.io/service-name={self.name}-stable"
        found = json.loads(self.kubectl("get", "endpointslices", "-l", chosen, "-o", "json"))["items"]
        return sum(bool(each["conditions"]["ready"]) for one in found for each in one.get("endpoints") or ())

    def objects(self) -> Mapping[str, tuple[str, str]]:
        """Everything of whatever kind that has these names or says it is this delivery's: identity and version."""
        kinds = self.kubectl("api-resources", "--namespaced", "--verbs=list", "-o", "name").split()
        wanted = ",".join(kind for kind in kinds if kind not in OF_THE_CLUSTER)
        found = json.loads(self.kubectl("get", wanted, "-o", "json", "--ignore-not-found"))["items"]
        return {
            f"{body['apiVersion']} {body['kind']} {body['metadata']['name']}": (
                body["metadata"]["uid"], body["metadata"].get("resourceVersion", ""),
            )
            for body in found if self._concerns(body["metadata"])
        }  # fmt: skip

    def kubectl(self, *words: str, given: str = "") -> str:
        """What kubectl says in that region's namespace."""
        return kubectl(self.bed, self.region, *words, given=given)

    def _concerns(self, metadata: Json) -> bool:
        return self.name in metadata["name"] or (metadata.get("labels") or {}).get(DELIVERY) == self.name

    def _plain(self, body: Json, image: str) -> Json:
        """One of the release as a person would write it: no tool's marks, and pods that this cluster can run."""
        metadata = {key: body["metadata"][key] for key in ("name", "namespace")}
        spec = json.loads(json.dumps(body["spec"]))
        if body["kind"] == "Rollout":
            spec["template"]["spec"] = {"containers": [{"name": "engine", "image": image}]}
        if body["kind"] == "HTTPRoute":
            spec |= {"parentRefs": [{"name": GATEWAY}], "hostnames": [f"{self.name}.example"]}
        return {**body, "metadata": metadata, "spec": spec}


def kubectl(bed: Bed, region: str, *words: str, given: str = "") -> str:
    """What kubectl says in a region's namespace."""
    context = bed.around.clusters[region].context
    where = ["--kubeconfig", bed.kubeconfig, "--context", context, "--namespace", bed.namespace]
    done = subprocess.run(["kubectl", *where, *words], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def kubeconfig_of(bed: Bed, region: str, account: str, file: Path) -> str:
    """A kubeconfig like the bed's, in which everybody is that service account; its path."""
    token = kubectl(bed, region, "create", "token", account, "--duration=2h").strip()
    given = yaml.safe_load(bed.kubeconfig_text())
    for each in given["users"]:
        each["user"] = {"token": token}
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump(given), encoding="utf-8")
    return str(file)


def _pause_image(nodes: Sequence[Json]) -> str:
    """What every node has for the sandboxes of its pods: it need not be pulled."""
    names = [name for node in nodes for image in node["status"].get("images", ()) for name in image.get("names", ())]
    return next(str(name) for name in names if "/pause" in name and "@" not in name)
