"""What Prometheus scrapes in a local fleet, and under which labels.

Every series says `service`, `region`, `role` and `version`, whether an engine or the proxy in front of it counted:
a gate compares two roles of one region and need not know who measured. The service is the delivery's name, for
which users ask: what tells its series from those of other deliveries in the same Prometheus.
"""

from __future__ import annotations

from pathlib import Path

from tidegate.core.model import Json

INTERVAL_SECONDS = 2
"""As often as gates look: sooner, nobody would read it."""

RULES_INTERVAL_SECONDS = 10
"""Between two evaluations of rules that name no interval: deliveries here last minutes."""

ENGINE_JOB = "engine"
PROXY_JOB = "proxy"
DELIVERY_JOB = "delivery"

# What gates, rules and the report read, and what a person asks first; all of it would be thousands of series.
_KEPT = {
    ENGINE_JOB: "vllm:.*|http_requests_total|process_(resident_memory_bytes|cpu_seconds_total|start_time_seconds)"
    "|tidegate_engine_.*",
    PROXY_JOB: "envoy_cluster_upstream_(rq|cx)_.*|envoy_cluster_upstream_rq|envoy_http_downstream_.*",
    DELIVERY_JOB: "tidegate_.*",
}


def config(targets: Path, rules: Path) -> Json:
    """Prometheus' own configuration; what to scrape stands in the file `targets` and may change at any time."""
    return {
        "global": {
            "scrape_interval": f"{INTERVAL_SECONDS}s",
            "scrape_timeout": f"{INTERVAL_SECONDS}s",
            "evaluation_interval": f"{RULES_INTERVAL_SECONDS}s",
        },
        "rule_files": [str(rules)],
        "scrape_configs": [
            _job(ENGINE_JOB, "/metrics", targets, []),
            _job(PROXY_JOB, "/stats/prometheus", targets, _cluster_labels()),
            _job(DELIVERY_JOB, "/metrics", targets, []),
        ],
    }


def target(part: str, url: str, **labels: str) -> Json:
    """What that address tells: the numbers of an engine, of a region's proxy, or a delivery's own."""
    return {"targets": [url.removeprefix("http://")], "labels": {"part": part, **labels}}


def _job(name: str, path: str, targets: Path, relabel: list[Json]) -> Json:
    return {
        "job_name": name,
        "metrics_path": path,
        "file_sd_configs": [{"files": [str(targets)], "refresh_interval": "5s"}],
        "relabel_configs": [
            {"source_labels": ["part"], "regex": name, "action": "keep"},
            {"regex": "part", "action": "labeldrop"},
        ],
        "metric_relabel_configs": [
            {"source_labels": ["__name__"], "regex": _KEPT[name], "action": "keep"},
            *relabel,
        ],
    }


def _cluster_labels() -> list[Json]:
    """`envoy_cluster_name="canary_7"` becomes `role="canary", version="7"`."""
    source = {"source_labels": ["envoy_cluster_name"], "regex": "(stable|canary|shadow|previous)_(.+)"}
    labels = {"role": "$1", "version": "$2"}
    return [{**source, "target_label": label, "replacement": group} for label, group in labels.items()]
