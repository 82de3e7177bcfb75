"""What a delivery promises, as files for other tools."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

from pipelines.spec.delivery import CanaryStage, Delivery
from pipelines.spec.sections import IN_CLUSTERS, LocalFleet
from slo.export import ExportCluster, ExportedFile, export_files
from slo.model import Labels
from slo.registry import agreement_rules
from slo.rules import RuleGroup
from slo.spec import CountedBy
from tidegate.core.access import conflicts_for_rollouts, endpoint_at
from tidegate.core.errors import UsageError
from tidegate.core.metrics import MetricSignal, source_of

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
    return export_files(
        spec.metadata.name,
        spec.slos,
        counted_by=counted_by,
        sources=spec.sources,
        more=agreement_of(spec),
        cost=spec.cost,
        stage=(spec.canary or CanaryStage()).within,
        # What is exported is for a cluster; the fleet on this machine has a Prometheus of its own.
        scrape_interval=IN_CLUSTERS if isinstance(spec.fleet, LocalFleet) else spec.scrape_interval,
        cluster=cluster,
    )


SLACK = timedelta(minutes=15)
"""For engines that start, smoke tests, and a look at the registry."""


def agreement_of(spec: Delivery) -> tuple[RuleGroup, ...]:
    """The alert when registry and region disagree; none where others' labels do not tell which version is stable."""
    engines = source_of(spec.sources, MetricSignal.ENGINES)
    if spec.sources and not (engines and engines.has_own_labels):
        return ()
    return (agreement_rules(spec.metadata.name, spec.model.target, promotion_window(spec) + SLACK),)


def promotion_window(spec: Delivery) -> timedelta:
    """From the first region that is promoted to the alias that moves at the end, when every stage takes its whole time.

    Approvals and freezes are not in it: while they hold a delivery back, it is under way.
    """
    wave = spec.shadow.within if spec.shadow else timedelta()
    if spec.canary:
        wave += len(spec.canary.weights) * spec.canary.within
    waves = len(spec.regions.waves)
    return waves * (spec.regions.bake + SLACK) + (waves - 1) * wave


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
