"""What a `/metrics` text says about the metrics in it, beside their values."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from slo.metrics import TARGET, Kind, Metric

NEVER_ASKED = "vllm:cache_config_info"
"""Its labels are the engine's settings."""

_FAMILY = re.compile(r"^# TYPE (\S+) (\S+)\n((?:(?!#).*\n)*)", re.MULTILINE)
_LABEL = re.compile(r'[{,](\w+)="([^"]*)"')


@dataclass
class Exported:
    """One metric."""

    kind: Kind
    labels: set[str] = field(default_factory=set)
    edges: set[float] = field(default_factory=set)


def exported(text: str) -> dict[str, Exported]:
    """By the names that were scraped; without the times at which counters began.

    Not Prometheus' own parser for Python: that one adds `_total` to counters which have none.
    """
    found: dict[str, Exported] = {}
    for name, kind, samples in _FAMILY.findall(re.sub(r"^# HELP.*\n", "", text, flags=re.MULTILINE)):
        if name.endswith("_created") or name == NEVER_ASKED:
            continue
        labels = _LABEL.findall(samples)
        edges = {float(value) for label, value in labels if label == "le" and value != "+Inf"}
        found[name] = Exported(Kind(kind), {label for label, _ in labels} - {"le"}, edges)
    return found


def agree(found: Exported, metric: Metric) -> bool:
    """Before Prometheus adds its labels; edges that depend on the model are taken as they come."""
    same = found.kind is metric.kind and found.labels == set(metric.labels) - set(TARGET)
    return same and (found.edges == set(metric.edges) or not metric.edges)
