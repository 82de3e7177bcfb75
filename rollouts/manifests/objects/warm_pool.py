"""Room for engines that are not there yet: placeholder pods hold GPUs, and go the moment an engine wants theirs.

The scheduler evicts pods of lower priority for one that would not fit otherwise. The placeholder then waits for a
node, and so makes the cluster's autoscaler bring the next one before it is needed.
"""

from __future__ import annotations

import math

from rollouts.kube.model import Json
from rollouts.kube.resources import DEPLOYMENTS, PRIORITY_CLASSES
from rollouts.manifests.conventions import PLACEHOLDER, warm_pool
from rollouts.manifests.conventions import cluster_wide as named
from rollouts.manifests.manifest import Site, manifest
from rollouts.manifests.objects.nodes import gpu_amount, scheduling
from rollouts.manifests.scaling_spec import WarmPoolSpec

PLACEHOLDER_PRIORITY = -10
"""Below every pod that says nothing, and the lowest for which the cluster autoscaler still brings nodes."""


def priority_classes(site: Site) -> tuple[Json, ...]:
    """Of engines, and of placeholders where there are any."""
    engines = manifest(
        PRIORITY_CLASSES,
        f"{site.name}-engines",
        site,
        value=site.fleet.priority,
        description="Engines that serve users.",
    )
    if site.fleet.warm_pool is None:
        return (engines,)
    placeholders = manifest(
        PRIORITY_CLASSES,
        f"{site.name}-placeholders",
        site,
        value=PLACEHOLDER_PRIORITY,
        preemptionPolicy="Never",
        description="Pods that hold nodes with GPUs for engines.",
    )
    return engines, placeholders


def placeholders(site: Site, wanted: WarmPoolSpec) -> Json:
    """The Deployment. Its pods lack the label that engines are chosen by, or users' requests would reach them."""
    pod, mark = site.fleet.pod, {PLACEHOLDER: site.name}
    amount = {"cpu": pod.cpu, "memory": pod.memory, **gpu_amount(site)}
    limits = {"memory": pod.memory, **gpu_amount(site)}
    container: Json = {
        "name": "placeholder",
        "image": wanted.image,
        "resources": {"requests": amount, "limits": limits},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    spec: Json = {
        "priorityClassName": named(site.fleet.namespace, f"{site.name}-placeholders"),
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": pod.user, "seccompProfile": {"type": "RuntimeDefault"}},
        **scheduling(site),
        "containers": [container],
    }
    deployment: Json = {
        "replicas": math.ceil(site.replicas * wanted.share),
        "selector": {"matchLabels": mark},
        "template": {"metadata": {"labels": mark}, "spec": spec},
    }
    return manifest(DEPLOYMENTS, warm_pool(site.name), site, spec=deployment)
