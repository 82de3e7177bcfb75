"""`tidegate slo`: options and help; what a command does is imported when it is called."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301, PLR0917

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.options import SPEC, As, Output, Spec

slo = typer.Typer(
    name="slo", help="Service level objectives: Sloth's formats or a delivery in, Prometheus rules and more out."
)


class Counting(StrEnum):
    """Who counts requests and their errors where the files will be used."""

    ENGINE = "engine"
    PROXY = "proxy"


Input = Annotated[
    Path,
    typer.Option("--input", "-i", help="A file, a directory searched for .yml and .yaml, or `-`.", allow_dash=True),
]


ExtraLabels = Annotated[
    list[str] | None, typer.Option("--extra-labels", "-l", metavar="KEY=VALUE", help="Label of every rule; repeatable.")
]


Period = Annotated[
    str, typer.Option("--default-slo-period", metavar="DURATION", help="Of SLOs that do not say their own.")
]


WindowsPath = Annotated[
    Path | None,
    typer.Option("--slo-period-windows-path", help="A directory of alert windows, in place of those for 28d and 30d."),
]


Exclude = Annotated[
    str | None,
    typer.Option(
        "--fs-exclude", "-e", metavar="REGEX", help="Of a directory: leave out paths in which this regex is found."
    ),
]


Include = Annotated[
    str | None,
    typer.Option(
        "--fs-include", "-n", metavar="REGEX", help="Of a directory: only paths in which this regex is found."
    ),
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
) -> int:
    """Write the Prometheus rules of SLOs, as Sloth v0.16 would; when any spec is wrong, writes nothing.

    Plain and OpenSLO specs become rule files, PrometheusServiceLevel objects become PrometheusRule objects.
    A directory becomes a directory with the same file names. Never changes its input.

    \b
    Examples:
      tidegate slo generate -i slos.yaml -o rules.yaml
      tidegate slo generate -i slos/ -o rules/ --fs-exclude _test -l team=serving
      tidegate slo generate -i - --default-slo-period 28d < slos.yaml
    """
    from tidegate.cli.commands.slo.rules import SloInput, generate_rules

    asked = SloInput(source, tuple(extra_labels or ()), period, windows_path, exclude, include)
    return generate_rules(asked, target, recordings=not disable_recordings, alerts=not disable_alerts)


@slo.command("validate")
def validate(
    source: Input,
    extra_labels: ExtraLabels = None,
    period: Period = "30d",
    windows_path: WindowsPath = None,
    exclude: Exclude = None,
    include: Include = None,
    output: As = Output.TEXT,
) -> int:
    """Check SLO specs, and that rules can be made of them; tells every problem at once. Changes nothing.

    \b
    Examples:
      tidegate slo validate -i slos/
      tidegate slo validate -i slos.yaml --output json
    """
    from tidegate.cli.commands.slo.rules import SloInput, validate_slos

    asked = SloInput(source, tuple(extra_labels or ()), period, windows_path, exclude, include)
    return validate_slos(asked, as_json=output is Output.JSON)


@slo.command("export")
def export(
    target: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="The folder of the files; made if absent.")
    ],
    spec: Spec = SPEC,
    prometheus: Annotated[
        str, typer.Option("--prometheus", metavar="ADDRESS", help="As Argo Rollouts reaches it from its namespace.")
    ] = "http://prometheus-operated.monitoring.svc:9090",
    namespace: Annotated[
        str, typer.Option("--namespace", metavar="NAME", help="Of every object; default: kubectl's own.")
    ] = "",
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", "-l", metavar="KEY=VALUE", help="Label of every Kubernetes object; repeatable."),
    ] = None,
    counted_by: Annotated[
        Counting, typer.Option("--counted-by", help="Who counts requests and errors, where an SLO does not say it.")
    ] = Counting.ENGINE,
    output: As = Output.TEXT,
) -> int:
    """Write a delivery's SLOs as files for Sloth, Prometheus, Argo Rollouts and Alertmanager; talks to none of them.

    Says of each file whether it changed: the same spec gives the same bytes. Never deletes a file, and refuses to
    replace one that it did not write.

    \b
    Examples:
      tidegate slo export delivery.yaml -o slo/
      tidegate slo export -o slo/ --namespace serving -l release=monitoring
      tidegate slo export -o slo/ --prometheus https://prometheus.example.com --output json
    """
    from tidegate.cli.commands.slo.export import ExportOptions, export_slos

    asked = ExportOptions(
        prometheus=prometheus, namespace=namespace, labels=tuple(labels or ()), counted_by=counted_by.value
    )
    return export_slos(spec, target, asked, as_json=output is Output.JSON)
