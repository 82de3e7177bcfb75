"""What ends a trial without a carrier: one small pod in each region, with rights of its own."""

from __future__ import annotations

from rollouts.kube.resources import (
    DEPLOYMENTS,
    NETWORK_POLICIES,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
)
from rollouts.manifests.conventions import GUARD, cluster_wide, guard
from rollouts.manifests.manifest import UNPRIVILEGED, Site, manifest
from rollouts.manifests.objects.access import guard_rights, role_binding
from rollouts.manifests.objects.network import METADATA_SERVERS
from rollouts.manifests.pod_spec import GuardSpec
from tidegate.core.model import Json
from tidegate.core.units import format_duration

PROBES = 8080
"""Where it says that it lives, and that it may do what it is there for."""


def guarding(site: Site) -> tuple[Json, ...]:
    """Its account, its rights, whom it may talk to, and itself; nothing where no image is known."""
    if not site.guard:
        return ()
    name = guard(site.name)
    rights = guard_rights(site.name, site.route, site.route_name)
    role = manifest(ROLES, name, site, rules=[right.rule for right in rights])
    return (
        manifest(SERVICE_ACCOUNTS, name, site, automountServiceAccountToken=False),
        role,
        role_binding(role, site, name, ROLE_BINDINGS),
        _network_policy(site),
        _deployment(site),
    )


def _network_policy(site: Site) -> Json:
    """Nobody asks it anything but the node, which probes it; no one knows here where the API server is."""
    anywhere = [{"ipBlock": {"cidr": each, "except": [server]}} for each, server in METADATA_SERVERS.items()]
    spec = {
        "podSelector": {"matchLabels": {GUARD: site.name}},
        "policyTypes": ["Ingress", "Egress"],
        "egress": [{"to": [{"namespaceSelector": {}}, *anywhere]}],
    }
    return manifest(NETWORK_POLICIES, guard(site.name), site, spec=spec)


def _deployment(site: Site) -> Json:
    mark = {GUARD: site.name}
    spec = {
        "replicas": 1,
        # Never two: the new one takes over what the old one began.
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": mark},
        "template": {"metadata": {"labels": mark}, "spec": _pod(site)},
    }
    return manifest(DEPLOYMENTS, guard(site.name), site, spec=spec)


def _pod(site: Site) -> Json:
    pod = site.fleet.pod
    return {
        "serviceAccountName": guard(site.name),
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        # It protects users as much as engines do, and must not wait for room behind placeholders.
        "priorityClassName": cluster_wide(site.fleet.namespace, f"{site.name}-engines"),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": pod.user,
            "runAsGroup": pod.user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **({"imagePullSecrets": [{"name": name} for name in pod.pull_secrets]} if pod.pull_secrets else {}),
        "containers": [_container(site, site.fleet.guard or GuardSpec())],
        "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "64Mi"}}],
    }


def _container(site: Site, wanted: GuardSpec) -> Json:
    return {
        "name": "guard",
        "image": site.guard,
        "command": ["tidegate", "rollout", "guard", site.name],
        "args": _options(site),
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


def _options(site: Site) -> list[str]:
    fleet = site.fleet
    options = {
        "--namespace": fleet.namespace,
        "--region": site.release.region,
        "--traffic": str(fleet.traffic),
        "--start-within": format_duration(fleet.pod.ready_within),
        "--after-abort": format_duration(fleet.canary.after_abort),
        "--warm": str(fleet.previous.versions if fleet.previous else 0),
        "--probes": str(PROBES),
        **({"--route": fleet.gateway.route} if fleet.gateway.route else {}),
    }
    return [word for option in options.items() for word in option]


def _probe(path: str, *, failures: int) -> Json:
    return {
        "httpGet": {"path": path, "port": "probes"},
        "periodSeconds": 10,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
