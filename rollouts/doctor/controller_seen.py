"""What the controller's namespace tells of the controller."""

from __future__ import annotations

import re

from prometheus_client.parser import text_string_to_metric_families

from rollouts.doctor.model import Controller
from rollouts.doctor.objects import container_states, labels_of, name_of
from rollouts.doctor.ports import Region
from rollouts.errors import ApiError, Forbidden, NotFound
from rollouts.kube.model import Json, Resource
from rollouts.kube.resources import CONFIG_MAPS, DEPLOYMENTS, LEASES, PODS

CONFIG = "argo-rollouts-config"
LEASE = "argo-rollouts-controller-lock"
"""The controller's own names for them; neither can be changed by a flag."""

_LABEL = "app.kubernetes.io/name=argo-rollouts"
_COMPONENT = "app.kubernetes.io/component"
_METRICS = "/api/v1/namespaces/{namespace}/services/argo-rollouts-metrics:8090/proxy/metrics"
_LOG = "/api/v1/namespaces/{namespace}/pods/{pod}/log?tailLines=500{which}"
_TROUBLE = re.compile(r"level=(error|fatal)|panic:|fatal", re.IGNORECASE)
SINCE_SECONDS = 1800
"""The controller tries again every 1000 s at the latest; what is older may have been mended."""
LOG_LINES = 3
"""Enough to name a cause; the whole log is a kubectl away."""


async def controller_of(region: Region, namespace: str, rollout: str) -> Controller:
    """Pods, lease, configuration, metrics and the end of the log, each as far as it may be read."""
    try:
        pods = [pod for pod in (await region.list(PODS, labels=_LABEL, namespace=namespace)).items if _reconciles(pod)]
    except (Forbidden, NotFound):
        return Controller(namespace=namespace, readable=False)
    try:
        deployments = (await region.list(DEPLOYMENTS, labels=_LABEL, namespace=namespace)).items
    except (Forbidden, NotFound):
        deployments = ()
    looks, errors = await _counted(region, namespace, rollout)
    config, unread = await _config(region, namespace)
    return Controller(
        namespace=namespace,
        deployments=tuple(one for one in deployments if _reconciles(one)),
        pods=tuple(pods),
        lease=await _one(region, LEASES, LEASE, namespace),
        config=config,
        config_unread=unread,
        reconciles=looks,
        errors=errors,
        log=await _log(region, namespace, pods, rollout),
    )


def _reconciles(item: Json) -> bool:
    """Not the dashboard, which the Helm chart gives the same name."""
    return labels_of(item).get(_COMPONENT) != "rollouts-dashboard"


async def _one(region: Region, resource: Resource, name: str, namespace: str) -> Json | None:
    try:
        return await region.get(resource, name, namespace=namespace)
    except (Forbidden, NotFound):
        return None


async def _config(region: Region, namespace: str) -> tuple[Json | None, bool]:
    """The ConfigMap, and whether it may not be read; one that is not there is an answer."""
    try:
        return await region.get(CONFIG_MAPS, CONFIG, namespace=namespace), False
    except NotFound:
        return None, False
    except Forbidden:
        return None, True


async def _counted(region: Region, namespace: str, rollout: str) -> tuple[float | None, float | None]:
    """Looks at the Rollout and errors among them, since the controller started; only its leader counts."""
    try:
        text = await region.text(_METRICS.format(namespace=namespace))
    except ApiError:
        return None, None
    wanted = {"name": rollout, "namespace": region.namespace}
    counts = {"rollout_reconcile_count": 0.0, "rollout_reconcile_error": 0.0}
    lines = [line for line in text.splitlines() if line.startswith(tuple(counts))]
    for family in text_string_to_metric_families("\n".join([*lines, ""])):
        for sample in family.samples:
            if sample.name in counts and wanted.items() <= sample.labels.items():
                counts[sample.name] += sample.value
    return counts["rollout_reconcile_count"], counts["rollout_reconcile_error"]


async def _log(region: Region, namespace: str, pods: list[Json], rollout: str) -> tuple[str, ...]:
    """The last lines that speak of trouble with this Rollout or with a plugin; of the run before, where one crashed."""
    lines: list[str] = []
    for pod in pods:
        waits = any("waiting" in (state.get("state") or {}) for state in container_states(pod))
        which = "&previous=true" if waits else f"&sinceSeconds={SINCE_SECONDS}"
        try:
            text = await region.text(_LOG.format(namespace=namespace, pod=name_of(pod), which=which))
        except ApiError:
            continue
        about = (rollout, "plugin")
        lines += [line for line in text.splitlines() if _TROUBLE.search(line) and any(word in line for word in about)]
    return tuple(dict.fromkeys(lines[-LOG_LINES:]))
