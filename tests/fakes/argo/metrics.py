"""What the controller's `/metrics` says, as far as it is needed.

Upstream: `controller/metrics/prommetrics.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rollouts.kube.model import Json

Counts = Mapping[tuple[str, str], int]
"""By namespace and Rollout."""


def metrics_of(rollouts: Iterable[Json], reconciles: Counts, errors: Counts) -> str:
    lines = ["# TYPE rollout_info gauge"]
    for body in rollouts:
        metadata, phase = body["metadata"], body.get("status", {}).get("phase", "")
        labels = f'name="{metadata["name"]}",namespace="{metadata["namespace"]}",phase="{phase}"'
        lines.append(f"rollout_info{{{labels}}} 1")
    for metric, counts in (("rollout_reconcile_count", reconciles), ("rollout_reconcile_error", errors)):
        for (namespace, name), count in sorted(counts.items()):
            lines.append(f'{metric}{{name="{name}",namespace="{namespace}"}} {count}')
    return "\n".join(lines) + "\n"
