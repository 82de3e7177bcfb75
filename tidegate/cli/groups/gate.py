"""`tidegate gate`: options and help; what a command does is imported when it is called."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301, PLR0917

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.durations import Duration, duration
from tidegate.cli.options import STATE, As, Output, ReportOptions, State, Tracking, spread

gate = typer.Typer(name="gate", help="The judge of a canary, for any orchestrator and any CI.")


class Report(StrEnum):
    """How a verdict is told."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"
    MARKDOWN = "markdown"


GatesFile = Annotated[Path, typer.Argument(metavar="GATES", help="A file of kind Gates, or a delivery.yaml.")]


@gate.command("stream")
def stream(
    gates: GatesFile,
    stop: Annotated[bool, typer.Option("--stop", help="End with the first verdict that is final.")] = False,
) -> int:
    """Judge batches of evidence as they come: JSON lines on stdin, one line of verdicts for each on stdout.

    A line that cannot be read is answered with the outcome `error` and teaches nothing. The exit code at the
    end of input: 0 every gate passed, 1 one failed, 3 too little evidence, 4 the last line could not be read.

    \b
    Examples:
      tidegate gate stream gates.yaml < evidence.jsonl
      tidegate gate stream gates.yaml --stop < /run/collector.pipe
    """
    from tidegate.cli.commands.gate import stream_verdicts

    return stream_verdicts(gates, stop=stop)


@gate.command("check")
@spread
def check(
    *,
    gates: GatesFile,
    evidence: Annotated[
        Path | None, typer.Option("--evidence", help="Batches as JSON lines; `-` reads stdin.", allow_dash=True)
    ] = None,
    prometheus: Annotated[str | None, typer.Option("--prometheus", help="Ask this Prometheus instead.")] = None,
    region: Annotated[str, typer.Option(help="The label `region` in Prometheus.")] = "",
    stable: Annotated[str, typer.Option(help="The label `version` of the stable arm.")] = "",
    canary: Annotated[str, typer.Option(help="The label `version` of the canary.")] = "",
    since: Annotated[Duration, typer.Option(parser=duration, help="How far back, such as 30m.")] = Duration(minutes=30),
    output: Annotated[Report, typer.Option("--output", help="How to report.")] = Report.TEXT,
    target: Annotated[Path | None, typer.Option("--to", help="Write the report there, not on stdout.")] = None,
    reporting: ReportOptions,
) -> int:
    """Judge evidence that is all there, for a stage of CI. Changes nothing.

    Exit code: 0 every gate passed, 1 one failed, 2 the evidence or a spec is wrong, 3 too little evidence,
    4 Prometheus was not there.

    \b
    Examples:
      tidegate gate check gates.yaml --evidence evidence.jsonl
      tidegate gate check gates.yaml --evidence evidence.jsonl --output junit --to gate.xml
      tidegate gate check gates.yaml --evidence evidence.jsonl --ci
      tidegate gate check gates.yaml --prometheus http://localhost:9090 --region eu-west-1 --stable 6 --canary 7
    """
    from gates.reports.check_report import REPORTS
    from tidegate.cli.ci import errors_told, reports_wanted
    from tidegate.cli.commands.gate import PrometheusTarget, judge, print_report

    reports = reports_wanted(ci=reporting.ci, junit=reporting.junit, summary=reporting.summary)
    asked = PrometheusTarget(url=prometheus, region=region, stable=stable, canary=canary, since=since)
    with errors_told(reports):
        judgement = judge(gates, evidence, asked)
    reports.write(REPORTS["junit"](judgement), REPORTS["markdown"](judgement))
    return print_report(judgement, output.value, target)


@gate.command("plan")
def plan(
    gates: GatesFile,
    requests_per_second: Annotated[
        float | None, typer.Option(min=0.001, help="Of all users; without it no time can be told.")
    ] = None,
    weight: Annotated[float, typer.Option(min=0.1, max=99, help="Percent of users on the canary.")] = 5.0,
    pairs_per_second: Annotated[
        float | None, typer.Option(min=0.001, max=1000, help="Prompts that go to both arms, for paired gates.")
    ] = None,
    within: Annotated[
        Duration, typer.Option(parser=duration, help="The time until a verdict, such as 30m.")
    ] = Duration(minutes=30),
    error_rate: Annotated[str, typer.Option(help="Of requests that fail on either arm.")] = "0.5%",
    spread: Annotated[float, typer.Option(min=0.05, max=3, help="Standard deviation of the ln of times.")] = 0.5,
    stable_pods: Annotated[int, typer.Option(min=1, help="With two or more, their spread weakens evidence.")] = 1,
    output: As = Output.TEXT,
) -> int:
    """Tell how many requests and how long each gate needs, and the smallest regression it sees. Changes nothing.

    Exit code: 0 every gate would pass a healthy version in time, 2 a spec is wrong, 3 one would not; then it is
    said what would mend it.

    \b
    Examples:
      tidegate gate plan gates.yaml --requests-per-second 20 --weight 5
      tidegate gate plan delivery.yaml --requests-per-second 200 --weight 25 --within 10m --output json
    """
    from tidegate.cli.commands.gate import ExpectedTraffic, plan_gates

    expected = ExpectedTraffic(requests_per_second, weight, pairs_per_second, within, error_rate, spread, stable_pods)
    return plan_gates(gates, expected, as_json=output is Output.JSON)


@gate.command("replay")
def replay(
    recorded: Annotated[str, typer.Argument(metavar="FILE|RUN", help="A recorded trial, or a delivery's id.")],
    stage: Annotated[
        str | None, typer.Option("--stage", help="Of a delivery: one trial only, such as canary@eu-west-1.")
    ] = None,
    state: State = STATE,
    tracking_uri: Tracking = None,
    output: As = Output.TEXT,
) -> int:
    """Judge what was recorded again, and say whether every verdict is the same, bit for bit. Changes nothing.

    Exit code: 0 every verdict is the same, 1 one differs, 2 there is no such record, 4 MLflow was not there.

    \b
    Examples:
      tidegate gate replay 0f3c2a51d2c94f0e8a6b --stage canary@eu-west-1
      tidegate gate replay .tidegate/deliveries/0f3c2a51d2c94f0e8a6b/evidence/canary@eu-west-1.jsonl
    """
    from tidegate.cli.commands.gate import replay_recorded

    return replay_recorded(recorded, stage, state, tracking_uri, as_json=output is Output.JSON)
