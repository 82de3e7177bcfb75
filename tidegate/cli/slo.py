"""`tidegate slo`: Prometheus rules and other files of SLOs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, BadParameter, Option, Typer

from tidegate.cli.options import SPEC, Duration, PrometheusAccessOption
from tidegate.cli.settings import Output, given, prints
from tidegate.core.errors import ExitCode, UsageError
from tidegate.core.units import parse_prometheus_duration

slo = Typer(name="slo", help="Prometheus rules, dashboards and alerts of SLOs.")


def _period(text: str | timedelta) -> Duration:
    try:
        return Duration(seconds=parse_prometheus_duration(text).total_seconds())
    except ValueError as error:
        raise BadParameter(f"found {text!r}; expected {error}") from error


Input = Annotated[
    Path, Argument(metavar="INPUT", help="A file, a directory with .yml and .yaml files, or `-`.", allow_dash=True)
]
Labels = Annotated[
    list[str] | None, Option("--extra-labels", "-l", metavar="KEY=VALUE", help="Label for every rule; repeatable.")
]
Period = Annotated[Duration, Option("--default-slo-period", parser=_period, help="Period of SLOs that state none.")]
Windows = Annotated[
    Path | None,
    Option(
        "--slo-period-windows-path",
        metavar="FOLDER",
        help="Directory of alert windows, in place of those for 28d and 30d.",
    ),
]
A_MONTH = Duration(days=30)


@slo.command("generate")
def generate(
    *,
    source: Input,
    target: Annotated[
        Path, Argument(metavar="OUTPUT", help="A file, `-`, or a directory when INPUT is one.", allow_dash=True)
    ] = Path("-"),
    extra_labels: Labels = None,
    period: Period = A_MONTH,
    windows: Windows = None,
    disable_recordings: Annotated[bool, Option("--disable-recordings", help="Leave out recording rules.")] = False,
    disable_alerts: Annotated[bool, Option("--disable-alerts", help="Leave out alerts.")] = False,
) -> int:
    """Write the Prometheus rules of SLOs, as Sloth v0.16 does.

    Writes nothing when any spec is wrong. Plain and OpenSLO specs become rule files, PrometheusServiceLevel objects
    become PrometheusRule objects. A directory becomes a directory with the same file names. Never changes its input.

    \b
    Examples:
      tidegate slo generate slos.yaml rules.yaml
      tidegate slo generate slos/ rules/ -l team=serving
      tidegate slo generate - --default-slo-period 28d < slos.yaml
    """
    from slo.rule_files import STREAM, refuse_target, rule_documents, write_rules
    from slo.rules import RuleOptions

    refuse_target(source, target)
    labels = _extra_labels(extra_labels)
    wanted = RuleOptions(extra_labels=labels, disable_recordings=disable_recordings, disable_alerts=disable_alerts)
    documents = rule_documents(source, wanted, period=period, windows_path=windows)
    write_rules(documents, source, target)
    if target != STREAM:
        slos = sum(len(group.slos) for found in documents.values() for group, _ in found)
        given().note(f"{target}: the rules of {slos} SLO{'s' * (slos != 1)}")
    return 0


@slo.command("validate")
@prints(Output.JSON, Output.YAML)
def validate(
    *,
    source: Input,
    extra_labels: Labels = None,
    period: Period = A_MONTH,
    windows: Windows = None,
) -> int:
    """Check SLO specs and their rules; prints every problem at once. Changes nothing.

    \b
    Examples:
      tidegate slo validate slos/
      tidegate slo validate slos.yaml --output json
    """
    from slo.rule_files import rule_documents
    from slo.rules import RuleOptions
    from tidegate.core.spec import SpecError

    wanted = RuleOptions(extra_labels=_extra_labels(extra_labels))
    try:
        documents = rule_documents(source, wanted, period=period, windows_path=windows)
    except SpecError as error:
        if not given().output.is_data:
            raise
        given().show({"valid": False, "files": [], "problems": [asdict(problem) for problem in error.problems]})
        return ExitCode.USAGE
    files = {path: [slo.id for group, _ in found for slo in group.slos] for path, found in documents.items()}
    listed = [{"file": str(path), "slos": slos} for path, slos in files.items()]
    lines = (f"{path}: {', '.join(slos)}" for path, slos in files.items())
    given().show({"valid": True, "files": listed, "problems": []}, *lines)
    return ExitCode.DELIVERED


def _extra_labels(texts: Sequence[str] | None) -> dict[str, str]:
    from slo.formats.fields import label_name

    def problem(key: str, value: str) -> str | None:
        try:
            label_name(key)
        except ValueError as error:
            return f"key=value, with {error}"
        return None if value else "key=value"

    return _pairs("--extra-labels", texts, problem)


def _pairs(option: str, texts: Sequence[str] | None, problem: Callable[[str, str], str | None]) -> dict[str, str]:
    """Labels as they are typed; `problem` says what is expected of one that is wrong."""
    pairs = {}
    for text in texts or ():
        key, _, value = text.partition("=")
        if expected := problem(key, value):
            raise UsageError(f"{option}: found {text!r}; expected {expected}")
        pairs[key] = value
    return pairs


@slo.command("export")
@prints(Output.JSON, Output.YAML)
def export(
    places: Annotated[
        list[Path],
        Argument(
            metavar="[SPEC] FOLDER",
            help=f"The delivery's spec, {SPEC} when left out, and the folder to write to, which is made if absent.",
        ),
    ],
    prometheus: Annotated[
        str, Option("--prometheus", metavar="ADDRESS", help="Address of Prometheus for Argo Rollouts.")
    ] = "http://prometheus-operated.monitoring.svc:9090",
    access: PrometheusAccessOption = None,
    namespace: Annotated[
        str, Option("-n", "--namespace", metavar="NAME", help="Namespace of every object; default: kubectl's own.")
    ] = "",
    labels: Annotated[
        list[str] | None,
        Option("--label", "-l", metavar="KEY=VALUE", help="Label for every Kubernetes object; repeatable."),
    ] = None,
    counted_by: Annotated[
        Literal["engine", "proxy"],
        Option("--counted-by", help="What counts requests and errors, where an SLO does not state it."),
    ] = "engine",
) -> int:
    """Write a delivery's SLOs as files for Prometheus, Argo Rollouts, Grafana and Sloth.

    Talks to none of them. Prints whether each file changed; the same spec gives the same bytes. Never deletes a file,
    and refuses to replace one that it did not write.

    \b
    Examples:
      tidegate slo export delivery.yaml slo/
      tidegate slo export slo/ --namespace serving -l release=monitoring
      tidegate slo export slo/ --prometheus https://prometheus.example.com --output json
      tidegate slo export slo/ --prometheus https://mimir.example.com/prometheus --prometheus-access mimir.yaml
    """
    from pipelines.adapters.specs import read_spec
    from pipelines.plan.slo_export import export_cluster, label_problem, slo_files
    from slo.export import write_files
    from slo.spec import CountedBy

    *named, folder = places
    if len(named) > 1:
        raise UsageError(f"found {len(places)} files; expected [SPEC] FOLDER")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is no folder", hint="name a folder to write to")
    cluster = export_cluster(prometheus, access, namespace, _pairs("--label", labels, label_problem))
    spec = named[0] if named else SPEC
    files = slo_files(read_spec(spec), spec, cluster, CountedBy(counted_by))
    told: list[dict[str, object]] = []
    lines = []
    for file, state in write_files(files, folder):
        path = str(folder / file.name)
        told.append({"file": path, "state": state, "holds": file.holds, "left_out": file.left_out})
        lines.append(f"{path}: {state}; {file.holds}")
        for reason in () if given().output.is_data else file.left_out:
            given().note(f"not in {path}: {reason}")
    given().show(told, *lines)
    return 0
