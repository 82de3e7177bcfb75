"""What a delivery promises, as files for other tools."""

from __future__ import annotations

import re
from pathlib import Path

from pipelines.spec.agreement import agreement_of
from pipelines.spec.delivery import CanaryStage, Delivery
from pipelines.spec.sections import IN_CLUSTERS, LocalFleet
from slo.export import ExportCluster, ExportedFile, ExportRequest, export_files
from slo.model import Labels
from slo.spec import CountedBy
from tidegate.core.access import conflicts_for_rollouts, endpoint_at
from tidegate.core.errors import UsageError

_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_KEY = re.compile(rf"([a-z0-9.-]{{1,253}}/)?{_LABEL_VALUE.pattern}")


def slo_files(spec: Delivery, path: Path, cluster: ExportCluster, counted_by: CountedBy) -> tuple[ExportedFile, ...]:
    """Every file of the delivery that was read from `path`; `counted_by` holds where an SLO does not say it.

    Raises:
        UsageError: it promises nothing, or says itself who counts.
    """
    if not spec.slos:
        raise UsageError(f"{path} has no `slos`", hint="add objectives under `slos`")
    if spec.sources and counted_by == CountedBy.PROXY:
        raise UsageError(
            "--counted-by proxy is of no use with `metrics.sources`", hint="the source of requests says who counts"
        )
    wanted = ExportRequest(
        delivery=spec.metadata.name,
        promises=spec.slos,
        counted_by=counted_by,
        sources=spec.sources,
        agreement=agreement_of(spec),
        cost=spec.cost,
        stage=(spec.canary or CanaryStage()).within,
        # What is exported is for a cluster; the fleet on this machine has a Prometheus of its own.
        scrape_interval=IN_CLUSTERS if isinstance(spec.fleet, LocalFleet) else spec.scrape_interval,
        cluster=cluster,
    )
    return export_files(wanted)


def export_cluster(url: str, access: Path | None, namespace: str, labels: Labels) -> ExportCluster:
    """Where the objects will live; `access` says how Argo Rollouts tells the Prometheus at `url` who asks.

    Raises:
        UsageError: an argument is none, or Argo Rollouts cannot prove it.
    """
    prometheus = endpoint_at(url, access)
    for odd in conflicts_for_rollouts(prometheus):
        where = ".".join(map(str, odd.where))
        raise UsageError(f"{access}: {where}: found {odd.found}; expected {odd.expected}")
    if namespace and not _NAMESPACE.fullmatch(namespace):
        raise UsageError(f"--namespace: found {namespace!r}; expected a name as Kubernetes has them")
    return ExportCluster(prometheus=prometheus, namespace=namespace, labels=labels)


def label_problem(key: str, value: str) -> str | None:
    """What Kubernetes expects in place of such a label; None where it takes it."""
    fits = _LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value)
    return None if fits else "key=value, as Kubernetes has them"
