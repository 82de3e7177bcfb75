"""What ends a trial without a carrier: one small pod in each region, with rights of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable

from rollouts.kube.resources import DEPLOYMENTS, NETWORK_POLICIES
from rollouts.manifests.conventions import GUARD, guard
from rollouts.manifests.manifest import UNPRIVILEGED, Place, Site, manifest
from rollouts.manifests.objects.access import Rights, account_with, guard_rights
from rollouts.manifests.objects.network import METADATA_SERVERS
from tidegate.core.model import Json

PROBES = 8080
"""Where it says that it lives, and that it may do what it is there for."""
MEMORY = "192Mi"
"""It uses some 60 MiB."""


def guard_of(site: Site) -> tuple[Json, ...]:
    """The guard of a Rollout that is rendered; nothing where no image is known."""
    fleet = site.fleet
    place = {"traffic": str(fleet.traffic), "start_seconds": fleet.pod.ready_within.total_seconds()}
    rights, release = guard_rights(site.name, site.name, fleet.route_kind, site.name), site.release
    return guarding(
        site, release.guard, rights, release.region, place, user=fleet.pod.user, pull_secrets=fleet.pod.pull_secrets
    )


def guarding(
    site: Site | Place,
    image: str,
    rights: Rights,
    region: str,
    place: Json,
    *,
    user: int = 10001,
    pull_secrets: Iterable[str] = (),
) -> tuple[Json, ...]:
    """Its account, its rights, whom it may talk to, and itself; nothing without an image.

    `place` is as `tidegate rollout guard --place` takes it.
    """
    if not image:
        return ()
    name, mark = guard(site.name), {GUARD: site.name}
    # Nobody asks it anything but the node, which probes it; no one knows here where the API server is.
    anywhere = [{"ipBlock": {"cidr": each, "except": [server]}} for each, server in METADATA_SERVERS.items()]
    policy = {
        "podSelector": {"matchLabels": mark},
        "policyTypes": ["Ingress", "Egress"],
        "egress": [{"to": [{"namespaceSelector": {}}, *anywhere]}],
    }
    options = {"--namespace": site.namespace, "--region": region, "--place": json.dumps(place), "--probes": str(PROBES)}
    secrets = [{"name": each} for each in pull_secrets]
    container = {
        "name": "guard",
        "image": image,
        "command": ["tidegate", "rollout", "guard", site.name],
        "args": [word for option in options.items() for word in option],
        # Where a crash of ours leaves its traceback.
        "env": [{"name": "HOME", "value": "/tmp"}, {"name": "TIDEGATE_STATE", "value": "/tmp"}],
        "ports": [{"name": "probes", "containerPort": PROBES, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "20m", "memory": MEMORY}, "limits": {"memory": MEMORY}},
        # Whether the API server answers is no reason to start it again.
        "livenessProbe": _probe("/healthz", failures=6),
        "readinessProbe": _probe("/readyz", failures=3),
        "securityContext": UNPRIVILEGED,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],
    }
    profile = {"type": "RuntimeDefault"}
    spec = {
        "serviceAccountName": name,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": user, "runAsGroup": user, "seccompProfile": profile},
        **({"imagePullSecrets": secrets} if secrets else {}),
        "containers": [container],
        "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "64Mi"}}],
    }
    deployment = {
        "replicas": 1,
        # Never two: the new one takes over what the old one began.
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": mark},
        "template": {"metadata": {"labels": mark}, "spec": spec},
    }
    return (
        *account_with(rights, site, name),
        manifest(NETWORK_POLICIES, name, site, spec=policy),
        manifest(DEPLOYMENTS, name, site, spec=deployment),
    )


def _probe(path: str, *, failures: int) -> Json:
    where = {"path": path, "port": "probes"}
    return {"httpGet": where, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": failures}
