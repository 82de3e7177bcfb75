"""What stands around a Rollout in its namespace: the workload that may hold its template, and its ReplicaSets."""

from __future__ import annotations

from rollouts.argo.model import Rollout
from rollouts.errors import NotPossible
from rollouts.kube.ports import ClusterReader
from rollouts.kube.resources import DEPLOYMENTS, POD_TEMPLATES, REPLICA_SETS
from tidegate.core.model import Json

REFERENCED = {"Deployment": DEPLOYMENTS, "ReplicaSet": REPLICA_SETS, "PodTemplate": POD_TEMPLATES}
"""What `spec.workloadRef` may name."""

OPERATORS = {
    "In": "{key} in ({values})",
    "NotIn": "{key} notin ({values})",
    "Exists": "{key}",
    "DoesNotExist": "!{key}",
}


async def workload_of(cluster: ClusterReader, rollout: Json) -> Json | None:
    """What `spec.workloadRef` names; None when the Rollout has a template of its own.

    Raises:
        NotPossible: when Argo Rollouts does not know such a reference either.
    """
    ref = Rollout(rollout).workload_ref
    if not ref:
        return None
    if ref.get("kind") not in REFERENCED:
        raise NotPossible(f"workloadRef to {ref.get('kind')}", hint=f"there are: {', '.join(REFERENCED)}")
    return await cluster.get(REFERENCED[ref["kind"]], ref["name"])


async def replica_sets_of(cluster: ClusterReader, rollout: Json, workload: Json | None = None) -> tuple[Json, ...]:
    """The ReplicaSets that its selector matches, no matter who controls them."""
    return (await cluster.list(REPLICA_SETS, labels=selector_of(rollout, workload))).items


def selector_of(rollout: Json, workload: Json | None = None) -> str:
    """The selector of its pods and ReplicaSets, as a query spells it (`LabelSelectorAsSelector`)."""
    selector = Rollout(rollout).spec.get("selector") or ((workload or {}).get("spec") or {}).get("selector") or {}
    labels = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    expressions = [
        OPERATORS[term["operator"]].format(key=term["key"], values=",".join(term.get("values") or []))
        for term in selector.get("matchExpressions") or []
    ]
    return ",".join([*labels, *expressions])
