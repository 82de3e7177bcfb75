"""PodMonitors and a ServiceMonitor: they scrape the engines, and set the labels that every rule and gate relies on.

A monitor is one delivery's, whose name its series carry as `service`. All other labels come from those of the
pods, so the same objects serve every region's cluster, and a cluster with several regions too. A pod without a
region or a version is not scraped: its series could not be told apart.
"""

from __future__ import annotations

import re
from datetime import timedelta

from slo.metrics import SERVICE
from slo.model import KubernetesNames
from slo.outputs import manifest
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY, POD_TEMPLATE_HASH, REGION, ROLE, VERSION
from tidegate.core.units import prometheus_duration

ENGINE_SERIES = (
    "vllm:.+|http_requests_total|process_(resident_memory_bytes|cpu_seconds_total|start_time_seconds)|"
    "tidegate_engine_.+"
)
"""What is kept of an engine's metrics; these carry `pod_template_hash`, and no other series does."""

GPU_SERIES = "DCGM_FI_(DEV|PROF)_.+"
"""What is kept of NVIDIA's DCGM exporter."""


def as_label(key: str) -> str:
    """How Prometheus and the DCGM exporter spell a pod label's key: with `_` for what a label name cannot have."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", key)


GPU_INTERVAL = timedelta(seconds=15)
"""Nothing is judged by GPUs, and their exporter measures twice a minute."""
LONGEST_TIMEOUT = timedelta(seconds=10)
"""Of a scrape, as Prometheus has it by itself."""

ENGINE_PORT = "http"
"""The name of the container port on which an engine answers requests and `/metrics`."""
GPU_PORT = "metrics"
"""The name of the DCGM exporter's container port in NVIDIA's own charts."""

_OF_POD = "__meta_kubernetes_pod_label_"
_NEVER_READ = ".+_created"
"""When a counter began: Prometheus sees resets by itself, and these are a third of an engine's series."""


def scrape_timeout(interval: timedelta) -> timedelta:
    """When a scrape of an engine is given up: everything of a sample is known so long after its time."""
    return min(interval, LONGEST_TIMEOUT)


def engine_monitor(delivery: str, names: KubernetesNames, interval: timedelta) -> Json:
    """Scrapes every engine of `delivery`, whatever its version and role, as often as gates need."""
    selector = {
        "matchLabels": {DELIVERY: delivery},
        "matchExpressions": [{"key": key, "operator": "Exists"} for key in (REGION, VERSION)],
    }
    endpoint = {
        "port": ENGINE_PORT,
        "path": "/metrics",
        "interval": prometheus_duration(interval),
        "scrapeTimeout": prometheus_duration(scrape_timeout(interval)),
        "relabelings": [
            {"targetLabel": SERVICE, "replacement": delivery},
            _copied(_OF_POD + as_label(REGION), "region"),
            _copied(_OF_POD + as_label(VERSION), "version"),
            {"targetLabel": "role", "replacement": "previous"},
            _copied(_OF_POD + as_label(ROLE), "role"),
            _copied(_OF_POD + as_label(POD_TEMPLATE_HASH), "pod_template_hash"),
        ],
        "metricRelabelings": [_named(ENGINE_SERIES, "keep"), _named(_NEVER_READ, "drop")],
    }
    return _monitor(names, selector, endpoint)


def gpu_monitor(delivery: str, names: KubernetesNames) -> Json:
    """Scrapes NVIDIA's DCGM exporter, of the GPUs that run this delivery's engines.

    The exporter must be told to put the labels of the pods that use a GPU on its metrics:
    `DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS=true`.
    """
    labels = {name: as_label(key) for name, key in {"region": REGION, "version": VERSION, "role": ROLE}.items()}
    endpoint = {
        "port": GPU_PORT,
        "path": "/metrics",
        "interval": prometheus_duration(GPU_INTERVAL),
        "metricRelabelings": [
            _named(GPU_SERIES, "keep"),
            {"sourceLabels": [as_label(DELIVERY)], "regex": delivery, "action": "keep"},
            {"targetLabel": SERVICE, "replacement": delivery},
            {"targetLabel": "role", "replacement": "previous"},
            *(_copied(source, name) for name, source in labels.items()),
            {"regex": "tidegate_dev_.+|" + as_label(POD_TEMPLATE_HASH), "action": "labeldrop"},
        ],
    }
    return _monitor(names, {"matchLabels": {"app": "nvidia-dcgm-exporter"}}, endpoint)


def _monitor(names: KubernetesNames, selector: Json, endpoint: Json) -> Json:
    spec: Json = {"namespaceSelector": {"any": True}, "selector": selector, "podMetricsEndpoints": [endpoint]}
    return manifest("monitoring.coreos.com/v1", "PodMonitor", names, spec)


def _copied(source: str, target: str) -> Json:
    """Sets a label where the source has a value, and leaves it alone where it has none."""
    return {"sourceLabels": [source], "regex": "(.+)", "targetLabel": target}


def _named(names: str, action: str) -> Json:
    return {"sourceLabels": ["__name__"], "regex": names, "action": action}
