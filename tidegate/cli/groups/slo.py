"""`tidegate slo`: options and help; what a command does is imported when it is called."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301, PLR0917

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.global_options import given, prints
from tidegate.cli.options import SPEC, PrometheusAccessOption, Spec
from tidegate.cli.output import Output

slo = typer.Typer(name="slo", help="Prometheus rules, dashboards and alerts of SLOs.")


class Counting(StrEnum):
    """Who counts requests and their errors where the files will be used."""

    ENGINE = "engine"
    PROXY = "proxy"


Input = Annotated[
    Path,
    typer.Option("--input", "-i", help="A file, a directory with .yml and .yaml files, or `-`.", allow_dash=True),
]


ExtraLabels = Annotated[
    list[str] | None,
    typer.Option("--extra-labels", "-l", metavar="KEY=VALUE", help="Label for every rule; repeatable."),
]


Period = Annotated[
    str, typer.Option("--default-slo-period", metavar="DURATION", help="Period of SLOs that state none.")
]


WindowsPath = Annotated[
    Path | None,
    typer.Option("--slo-period-windows-path", help="Directory of alert windows, in place of those for 28d and 30d."),
]


Exclude = Annotated[
    str | None,
    typer.Option("--fs-exclude", "-e", metavar="REGEX", help="In a directory: skip paths that match this regex."),
]


Include = Annotated[
    str | None,
    typer.Option("--fs-include", "-n", metavar="REGEX", help="In a directory: only paths that match this regex."),
]


Duplicates = Annotated[
    bool,
    typer.Option("--ignore-slo-duplicates", help="Take SLOs of one service and name in several places."),
]


@slo.command("generate")
def generate(
    source: Input,
    target: Annotated[
        Path, typer.Option("--out", "-o", help="A file, `-`, or a directory when the input is one.", allow_dash=True)
    ] = Path("-"),
    extra_labels: ExtraLabels = None,
    disable_recordings: Annotated[
        bool, typer.Option("--disable-recordings", help="Leave out recording rules.")
    ] = False,
    disable_alerts: Annotated[bool, typer.Option("--disable-alerts", help="Leave out alerts.")] = False,
    period: Period = "30d",
    windows_path: WindowsPath = None,
    exclude: Exclude = None,
    include: Include = None,
    duplicates: Duplicates = False,
) -> int:
    """Write the Prometheus rules of SLOs, as Sloth v0.16 does.

    Writes nothing when any spec is wrong. Plain and OpenSLO specs become rule files, PrometheusServiceLevel objects
    become PrometheusRule objects. A directory becomes a directory with the same file names. Never changes its input.

    \b
    Examples:
      tidegate slo generate -i slos.yaml -o rules.yaml
      tidegate slo generate -i slos/ -o rules/ --fs-exclude _test -l team=serving
      tidegate slo generate -i - --default-slo-period 28d < slos.yaml
    """
    from tidegate.cli.commands.slo.rules import SloInput, generate_rules

    asked = SloInput(source, tuple(extra_labels or ()), period, windows_path, exclude, include, duplicates)
    return generate_rules(asked, target, recordings=not disable_recordings, alerts=not disable_alerts)


@slo.command("validate")
@prints(Output.JSON, Output.YAML)
def validate(
    source: Input,
    extra_labels: ExtraLabels = None,
    period: Period = "30d",
    windows_path: WindowsPath = None,
    exclude: Exclude = None,
    include: Include = None,
    duplicates: Duplicates = False,
) -> int:
    """Check SLO specs and their rules; prints every problem at once. Changes nothing.

    \b
    Examples:
      tidegate slo validate -i slos/
      tidegate slo validate -i slos.yaml --output json
    """
    from tidegate.cli.commands.slo.rules import SloInput, validate_slos

    asked = SloInput(source, tuple(extra_labels or ()), period, windows_path, exclude, include, duplicates)
    return validate_slos(asked, output=given().output)


@slo.command("export")
def export(
    target: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder to write to; created if absent.")],
    spec: Spec = SPEC,
    prometheus: Annotated[
        str, typer.Option("--prometheus", metavar="ADDRESS", help="Address of Prometheus for Argo Rollouts.")
    ] = "http://prometheus-operated.monitoring.svc:9090",
    access: PrometheusAccessOption = None,
    namespace: Annotated[
        str,
        typer.Option("-n", "--namespace", metavar="NAME", help="Namespace of every object; default: kubectl's own."),
    ] = "",
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", "-l", metavar="KEY=VALUE", help="Label for every Kubernetes object; repeatable."),
    ] = None,
    counted_by: Annotated[
        Counting, typer.Option("--counted-by", help="What counts requests and errors, where an SLO does not state it.")
    ] = Counting.ENGINE,
    # Without `-o`, which is --out here as in Sloth.
    output: Annotated[Output, typer.Option("--output", help="Output format.")] = Output.TEXT,
) -> int:
    """Write a delivery's SLOs as files for Prometheus, Argo Rollouts, Alertmanager, Grafana and Sloth.

    Talks to none of them. Prints whether each file changed; the same spec gives the same bytes. Never deletes a file,
    and refuses to replace one that it did not write.

    \b
    Examples:
      tidegate slo export delivery.yaml -o slo/
      tidegate slo export -o slo/ --namespace serving -l release=monitoring
      tidegate slo export -o slo/ --prometheus https://prometheus.example.com --output json
      tidegate slo export -o slo/ --prometheus https://mimir.example.com/prometheus --prometheus-access mimir.yaml
    """
    from tidegate.cli.commands.slo.export import ExportOptions, export_slos

    asked = ExportOptions(
        prometheus=prometheus,
        namespace=namespace,
        labels=tuple(labels or ()),
        counted_by=counted_by.value,
        access=access,
    )
    return export_slos(spec, target, asked, output=output)
