"""The LeaderWorkerSet of a version whose engines take several nodes each.

Every pod of a group runs the same image with the same arguments: vLLM over torch.distributed, without Ray (`--nnodes`).
The leader answers requests, workers have no server (`--headless`). A group lives and dies as one: whichever container
ends, all its pods are made again, since the others wait for it in vain.

Fields: `api/leaderworkerset/v1/leaderworkerset_types.go` of kubernetes-sigs/lws.
"""

from __future__ import annotations

import json
from hashlib import sha256

from rollouts.kube.resources import LEADER_WORKER_SETS
from rollouts.manifests.conventions import EXCLUSIVE_TOPOLOGY, INDEX, LEADER, LEADER_ADDRESS
from rollouts.manifests.fields import whole_seconds
from rollouts.manifests.manifest import Site, manifest
from rollouts.manifests.objects.engines.pod import engine_pod
from rollouts.manifests.objects.nodes import gpu_amount, scheduling
from rollouts.manifests.objects.prebuilt import bringing, prebuilt_container
from rollouts.model import ImageLaunch
from tidegate.core.model import Json
from tidegate.core.names import REGION, VERSION

_SERVER_ALONE = ("ports", "startupProbe", "readinessProbe", "livenessProbe")
"""What a container without a server has no use for."""


def leader_worker_set(site: Site) -> Json:
    """The object, named after what it makes: another engine is another set, and none is ever changed."""
    release, topology = site.release, site.fleet.multi_node.topology if site.fleet.multi_node else None
    launch = release.launch or ImageLaunch()
    before, placed = bringing(site, launch), scheduling(site)
    template = {
        "size": site.pods_each,
        "restartPolicy": "RecreateGroupOnPodRestart",
        "leaderTemplate": engine_pod(site, _part(site, launch, LEADER), before, placed),
        "workerTemplate": engine_pod(site, _worker(site, launch), before, placed),
    }
    labels = {REGION: release.region, VERSION: release.version}
    # Workers begin at once: the leader is ready only when they are.
    spec = {"replicas": site.replicas, "startupPolicy": "LeaderCreated", "leaderWorkerTemplate": template}
    made = manifest(LEADER_WORKER_SETS, f"{site.name}-{_digest(template)}", site, labels=labels, spec=spec)
    if topology:
        made["metadata"]["annotations"] = {EXCLUSIVE_TOPOLOGY: topology}
    return made


def _worker(site: Site, launch: ImageLaunch) -> Json:
    part = _part(site, launch, INDEX)
    part["args"].append("--headless")
    # Told to stop with its leader, it stays for as long as the leader may still answer.
    part["lifecycle"] = {"preStop": {"sleep": {"seconds": whole_seconds(site.fleet.pod.drain)}}}
    return {field: said for field, said in part.items() if field not in _SERVER_ALONE}


def _part(site: Site, launch: ImageLaunch, rank: str) -> Json:
    part = prebuilt_container(site, launch, gpu_amount(site))
    nodes = ("--nnodes", str(site.pods_each), "--node-rank", rank, "--master-addr", LEADER_ADDRESS)
    return {**part, "args": [*part["args"], "--distributed-executor-backend", "mp", *nodes]}


def _digest(template: Json) -> str:
    return sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:8]
