"""The Kubernetes objects of an export, file by file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from slo.export.model import Exported, Wanted
from slo.export.wording import MONITORS, TEMPLATES
from slo.kubernetes.analysis import analysis_template
from slo.kubernetes.manifest import Manifest
from slo.kubernetes.pod_monitor import engine_monitor, gpu_monitor
from slo.kubernetes.question import Stage
from slo.model import Slo
from slo.outputs import prometheus_rule
from slo.outputs.layout import written
from slo.rules import RuleGroup
from slo.windows import windows_for
from tidegate.core.errors import UsageError


def prometheus_rules(
    wanted: Wanted, slos: Iterable[tuple[Slo, tuple[RuleGroup, ...]]], signals: tuple[RuleGroup, ...]
) -> Exported:
    """An object for each SLO and one for the signals: each far below the 512 KiB that the operator takes."""
    objects = [prometheus_rule(groups, wanted.names("slo", slo)) for slo, groups in slos]
    objects.append(prometheus_rule(signals, wanted.names("signals")))
    return Exported(name="prometheus-rule.yaml", text="".join(objects), holds=f"{len(objects)} PrometheusRule objects")


def analysis_templates(wanted: Wanted, slos: Iterable[Slo]) -> Exported:
    """Two for each SLO: one that a step runs for as long as a canary is on trial, and one without an end."""
    objects, left_out = [], []
    for slo in slos:
        try:
            objects += list(_templates(wanted, slo))
        except UsageError as error:
            left_out.append(error.message)
    return Exported(
        name="analysis-templates.yaml",
        text="".join(written(each, header=TEMPLATES) for each in objects) or TEMPLATES,
        holds=f"{len(objects)} AnalysisTemplate objects",
        left_out=tuple(left_out),
    )


def pod_monitors(wanted: Wanted) -> Exported:
    """One for the engines, one for their GPUs."""
    objects = [
        engine_monitor(wanted.delivery, wanted.names("engines"), wanted.scrape_interval),
        gpu_monitor(wanted.delivery, wanted.names("gpus")),
    ]
    text = "".join(written(each, header=MONITORS) for each in objects)
    return Exported(name="pod-monitors.yaml", text=text, holds="2 PodMonitor objects: engines, and their GPUs")


def _templates(wanted: Wanted, slo: Slo) -> Iterator[Manifest]:
    for suffix in ("step", "background"):
        yield analysis_template(
            slo,
            Stage(length=wanted.stage, background=suffix == "background"),
            names=wanted.names(suffix, slo),
            prometheus=wanted.cluster.prometheus,
            windows=windows_for(slo.window),
        )
