"""Deployments, as far as a region has any: a replica set for the template, and the status.

Kubernetes: `pkg/controller/deployment`. A new template replaces the old pods at once, whatever the strategy says.
"""

from __future__ import annotations

import copy

from fakes.argo.objects import ReplicaSet, reference_to, safe_hash
from fakes.argo.world import World

from rollouts.kube.model import Json
from rollouts.kube.resources import REPLICA_SETS

_HASH = "pod-template-hash"


def reconcile_deployment(world: World, body: Json) -> None:
    spec, metadata = body["spec"], body["metadata"]
    wished, name = int(spec.get("replicas", 1)), f"{metadata['name']}-{safe_hash(spec['template'])}"
    owned = [ReplicaSet(rs) for rs in world.index.owned(REPLICA_SETS, body)]
    for rs in owned:
        count = wished if rs.name == name else 0
        if rs.replicas != count:
            rs.body["spec"]["replicas"] = count
            rs.body = world.update(rs.body)
    if all(rs.name != name for rs in owned):
        owned.append(ReplicaSet(world.create(_replica_set(body, name, wished))))
    ready, available = sum(rs.ready for rs in owned), sum(rs.available for rs in owned)
    counts = {"replicas": sum(rs.actual for rs in owned), "readyReplicas": ready, "availableReplicas": available}
    counts["updatedReplicas"] = next(rs.actual for rs in owned if rs.name == name)
    status: Json = {"observedGeneration": metadata["generation"]} | {
        key: count for key, count in counts.items() if count
    }
    value = str(available >= wished)
    status["conditions"] = [{"type": "Available", "status": value, "reason": "MinimumReplicasAvailable"}]
    world.report(body, status)


def _replica_set(body: Json, name: str, count: int) -> Json:
    template = copy.deepcopy(body["spec"]["template"])
    label = {_HASH: name.rpartition("-")[2]}
    template["metadata"]["labels"] = template["metadata"].get("labels", {}) | label
    selector = {"matchLabels": body["spec"]["selector"].get("matchLabels", {}) | label}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "namespace": body["metadata"]["namespace"],
            "labels": template["metadata"]["labels"],
            "ownerReferences": [reference_to(body)],
        },
        "spec": {"replicas": count, "selector": selector, "template": template},
    }
