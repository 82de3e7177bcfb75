"""What ends a trial without a carrier: one small pod in each region, with rights of its own."""

from __future__ import annotations

import json

from rollouts.kube.resources import DEPLOYMENTS, NETWORK_POLICIES
from rollouts.manifests.conventions import GUARD, guard
from rollouts.manifests.manifest import UNPRIVILEGED, Site, manifest
from rollouts.manifests.objects.access import Rights, account_with, guard_rights
from rollouts.manifests.objects.network import METADATA_SERVERS
from rollouts.manifests.pod_spec import GuardSpec
from tidegate.core.model import Json, Value

PROBES = 8080
"""Where it says that it lives, and that it may do what it is there for."""


class GuardPlace(Value):
    """A guard, and whom it guards."""

    name: str
    """Of the delivery."""
    namespace: str
    image: str
    """By digest; empty for no guard."""
    rights: Rights
    region: str
    place: Json
    """As `tidegate rollout guard --place` takes it."""
    settings: GuardSpec = GuardSpec()
    user: int = 10001
    pull_secrets: tuple[str, ...] = ()
    priority: str = ""
    """A PriorityClass; empty for none."""


def guard_place(site: Site) -> GuardPlace:
    """The guard of a Rollout that is rendered."""
    fleet = site.fleet
    place = {
        "traffic": str(fleet.traffic),
        "start_seconds": fleet.pod.ready_within.total_seconds(),
        "after_abort_seconds": fleet.canary.after_abort.total_seconds(),
        "warm_versions": fleet.previous.versions if fleet.previous else None,
    }
    return GuardPlace(
        name=site.name,
        namespace=fleet.namespace,
        image=site.release.guard,
        rights=guard_rights(site.name, site.name, site.route, site.name),
        region=site.release.region,
        place=place,
        settings=fleet.guard or GuardSpec(),
        user=fleet.pod.user,
        pull_secrets=fleet.pod.pull_secrets,
        # It protects users as much as engines do, and must not wait for room behind placeholders.
        priority=site.priority,
    )


def guarding(site: GuardPlace) -> tuple[Json, ...]:
    """Its account, its rights, whom it may talk to, and itself; nothing where no image is known."""
    if not site.image:
        return ()
    name = guard(site.name)
    return (*account_with(site.rights, site, name), _network_policy(site), _deployment(site))


def _network_policy(site: GuardPlace) -> Json:
    """Nobody asks it anything but the node, which probes it; no one knows here where the API server is."""
    anywhere = [{"ipBlock": {"cidr": each, "except": [server]}} for each, server in METADATA_SERVERS.items()]
    spec = {
        "podSelector": {"matchLabels": {GUARD: site.name}},
        "policyTypes": ["Ingress", "Egress"],
        "egress": [{"to": [{"namespaceSelector": {}}, *anywhere]}],
    }
    return manifest(NETWORK_POLICIES, guard(site.name), site, spec=spec)


def _deployment(site: GuardPlace) -> Json:
    mark = {GUARD: site.name}
    security = {
        "runAsNonRoot": True,
        "runAsUser": site.user,
        "runAsGroup": site.user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    pod = {
        "serviceAccountName": guard(site.name),
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        **({"priorityClassName": site.priority} if site.priority else {}),
        "securityContext": security,
        **({"imagePullSecrets": [{"name": name} for name in site.pull_secrets]} if site.pull_secrets else {}),
        "containers": [_container(site)],
        "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "64Mi"}}],
    }
    spec = {
        "replicas": 1,
        # Never two: the new one takes over what the old one began.
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": mark},
        "template": {"metadata": {"labels": mark}, "spec": pod},
    }
    return manifest(DEPLOYMENTS, guard(site.name), site, spec=spec)


def _container(site: GuardPlace) -> Json:
    wanted, place = site.settings, json.dumps(site.place)
    options = {"--namespace": site.namespace, "--region": site.region, "--place": place, "--probes": str(PROBES)}
    return {
        "name": "guard",
        "image": site.image,
        "command": ["tidegate", "rollout", "guard", site.name],
        "args": [word for option in options.items() for word in option],
        # Where a crash of ours leaves its traceback.
        "env": [{"name": "HOME", "value": "/tmp"}, {"name": "TIDEGATE_STATE", "value": "/tmp"}],
        "ports": [{"name": "probes", "containerPort": PROBES, "protocol": "TCP"}],
        "resources": {
            "requests": {"cpu": wanted.cpu, "memory": wanted.memory},
            "limits": {"memory": wanted.memory},
        },
        # Whether the API server answers is no reason to start it again.
        "livenessProbe": _probe("/healthz", failures=6),
        "readinessProbe": _probe("/readyz", failures=3),
        "securityContext": UNPRIVILEGED,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],
    }


def _probe(path: str, *, failures: int) -> Json:
    return {
        "httpGet": {"path": path, "port": "probes"},
        "periodSeconds": 10,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
