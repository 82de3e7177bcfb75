"""The files of `slo export`, which make a delivery's SLOs work without tidegate.

For Sloth, Prometheus, a cluster and Grafana, in the order in which a person would read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Literal

from pydantic import Field

from slo.catalogue import group_of
from slo.dashboards.grafana import dashboard_json, dashboards_of
from slo.formats.sloth import write_prometheus
from slo.kubernetes.analysis import analysis_template
from slo.kubernetes.pod_monitor import engine_monitor, gpu_monitor
from slo.model import KubernetesNames, Labels, Slo, SloGroup
from slo.outputs import prometheus_rule, rule_file, yaml_document
from slo.rules import RuleGroup, rules_for
from slo.signals import signal_groups
from slo.spec import CostSpec, CountedBy, SloSpec
from slo.windows import windows_for
from tidegate.core.access import Endpoint, PrometheusEndpoint
from tidegate.core.errors import UsageError
from tidegate.core.files import write_atomically
from tidegate.core.metrics import MetricSource
from tidegate.core.model import Value
from tidegate.core.names import DELIVERY, object_name
from tidegate.core.units import format_duration

MARK = "# Written by tidegate"
"""How each of them begins, also those whose first lines are written elsewhere."""

MARK_OF_JSON = '"tidegate"'
"""A tag of every dashboard: JSON has no comments."""

SLOTH = f"""\
{MARK}, for Sloth v0.16: {{call}}
# Change the SLOs in delivery.yaml, not this file.

"""
TEMPLATES = f"""\
---
{MARK}, for Argo Rollouts. Change the SLOs in delivery.yaml, not this file.
# Templates named -step are for a step of a canary, those named -background for the analysis of the whole rollout.

"""
MONITORS = f"""\
---
{MARK}, for the Prometheus operator. Change delivery.yaml, not this file.

"""


class ExportCluster(Value):
    """Where the objects will live."""

    prometheus: Endpoint = PrometheusEndpoint(url="http://prometheus-operated.monitoring.svc:9090")
    """As Argo Rollouts reaches it from its own namespace."""
    namespace: str = ""
    """Of every object; the one who applies them says it when empty."""
    labels: Labels = Field(default_factory=dict)
    """Of every object, besides our own: rule and monitor selectors ask for them."""


class ExportedFile(Value):
    """One file."""

    name: str
    """Its path below the folder of the export."""
    text: str
    holds: str
    """What is in it, in a few words."""
    mark: str = MARK
    """Stands in every version of the file that an export has written."""
    left_out: tuple[str, ...] = ()
    """What could not be in it, each with the reason."""


def export_files(
    delivery: str,
    promises: Sequence[SloSpec],
    *,
    counted_by: CountedBy,
    stage: timedelta,
    scrape_interval: timedelta,
    sources: Sequence[MetricSource] = (),
    cost: CostSpec | None = None,
    more: Sequence[RuleGroup] = (),
    cluster: ExportCluster | None = None,
) -> tuple[ExportedFile, ...]:
    """Every file; the same input gives the same bytes.

    Args:
        delivery: whose they are.
        promises: its SLOs, one at least.
        counted_by: who counts requests, where neither an SLO nor a source says it.
        stage: how long a canary is on trial.
        scrape_interval: of the engines.
        sources: where it is read what others count; vLLM's own metrics when empty.
        cost: of engines.
        more: rules besides those of SLOs and signals.
        cluster: where the objects will live.
    """
    at = cluster or ExportCluster()

    def names(suffix: str, slo: Slo | None = None) -> KubernetesNames:
        # A dot joins the names of both, which have none: with a dash, `chat-eu` and `ttft` would be `chat` and
        # `eu-ttft`.
        name = object_name(f"{delivery}.{slo.name}" if slo else delivery, suffix)
        return KubernetesNames(name=name, namespace=at.namespace, labels={DELIVERY: delivery} | dict(at.labels))

    group = group_of(promises, service=delivery, counted_by=counted_by, sources=sources)
    signals = (*signal_groups(service=delivery, counted_by=counted_by, sources=sources, cost=cost), *more)
    ruled = [(slo, rules_for(group.model_copy(update={"slos": (slo,)}), windows_for(slo.window))) for slo in group.slos]
    everything = [*(rules for _, groups in ruled for rules in groups), *signals]
    count = sum(len(rules.rules) for rules in everything)
    # An object for each SLO and one for the signals: each far below the 512 KiB that the operator takes.
    objects = [prometheus_rule(groups, names("slo", slo)) for slo, groups in ruled]
    objects.append(prometheus_rule(signals, names("signals")))
    monitors = engine_monitor(delivery, names("engines"), scrape_interval), gpu_monitor(delivery, names("gpus"))
    dashboards = dashboards_of(promises, service=delivery, counted_by=counted_by, sources=sources, cost=cost)
    return (
        *_sloth(group),
        ExportedFile(name="rules.yaml", text=rule_file(everything), holds=f"{count} rules: SLOs, alerts and signals"),
        ExportedFile(
            name="prometheus-rule.yaml", text="".join(objects), holds=f"{len(objects)} PrometheusRule objects"
        ),
        _analysis_templates(group.slos, stage, names, at.prometheus),
        ExportedFile(
            name="pod-monitors.yaml",
            text="".join(yaml_document(each, header=MONITORS) for each in monitors),
            holds="2 PodMonitor objects: engines, and their GPUs",
        ),
        *(
            ExportedFile(
                name=f"dashboards/{each['uid']}.json",
                text=dashboard_json(each, dashboards),
                holds=f"a dashboard for Grafana: {each['title']}",
                mark=MARK_OF_JSON,
            )
            for each in dashboards
        ),
    )


_SLOTHS_OWN = timedelta(days=30)
"""The period that Sloth takes when nobody says one."""


def _sloth(group: SloGroup) -> Iterator[ExportedFile]:
    """A file for each period: Sloth is told the period of a whole file when it is called."""
    for period in sorted({slo.window for slo in group.slos}, reverse=True):
        slos = tuple(slo for slo in group.slos if slo.window == period)
        length = format_duration(period)
        name = "sloth.yaml" if period == _SLOTHS_OWN else f"sloth-{length}.yaml"
        text = write_prometheus(group.model_copy(update={"slos": slos}))
        call = f"sloth generate -i {name} --default-slo-period {length}"
        yield ExportedFile(
            name=name,
            text=SLOTH.format(call=call) + text,
            holds=f"{len(slos)} SLO{'s' * (len(slos) != 1)} over {length}, in Sloth's format",
        )


def _analysis_templates(
    slos: Iterable[Slo], stage: timedelta, names: Callable[[str, Slo], KubernetesNames], prometheus: PrometheusEndpoint
) -> ExportedFile:
    """Two for each SLO: one that a step runs for as long as a canary is on trial, and one without an end."""
    objects, left_out = list[str](), list[str]()
    for slo in slos:
        try:
            for suffix, background in (("step", False), ("background", True)):
                made = analysis_template(
                    slo, stage=stage, background=background, names=names(suffix, slo), prometheus=prometheus
                )
                objects.append(yaml_document(made, header=TEMPLATES))
        except UsageError as error:
            left_out.append(error.message)
    return ExportedFile(
        name="analysis-templates.yaml",
        text="".join(objects) or TEMPLATES,
        holds=f"{len(objects)} AnalysisTemplate objects",
        left_out=tuple(left_out),
    )


FileState = Literal["new", "changed", "unchanged"]


def write_files(files: Iterable[ExportedFile], folder: Path) -> Sequence[tuple[ExportedFile, FileState]]:
    """Write those that are not there yet as they should be; every other file of the folder stays.

    Raises:
        UsageError: one would replace what somebody else wrote.
    """
    states = [(file, _state(folder / file.name, file)) for file in files]
    write_atomically({folder / file.name: file.text for file, state in states if state != "unchanged"})
    return states


def _state(path: Path, file: ExportedFile) -> FileState:
    hint = "move it away, or export to another folder"
    try:
        there = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return "new"
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as what was exported before", hint=hint) from error
    if file.mark not in there:
        raise UsageError(f"{path} was not written by tidegate", hint=hint)
    return "unchanged" if there == file.text else "changed"
