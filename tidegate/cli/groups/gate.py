"""`tidegate gate`: options and help; what a command does is imported when it is called."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301, PLR0917

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.durations import Duration, duration
from tidegate.cli.global_options import given, prints
from tidegate.cli.options import PrometheusAccessOption, ReportOptions, spread
from tidegate.cli.output import Output

gate = typer.Typer(name="gate", help="Judge a canary by evidence, in any orchestrator or CI.")


class Report(StrEnum):
    """How a verdict is told."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"
    MARKDOWN = "markdown"


class ServeOutput(StrEnum):
    """How `gate serve` tells a change."""

    TEXT = "text"
    JSON = "json"


GatesFile = Annotated[Path, typer.Argument(metavar="GATES", help="A file of kind Gates, or a delivery.yaml.")]


@gate.command("check")
@spread
def check(
    *,
    gates: GatesFile,
    evidence: Annotated[
        Path | None, typer.Option("--evidence", help="Batches as JSON lines; `-` reads stdin.", allow_dash=True)
    ] = None,
    prometheus: Annotated[str | None, typer.Option("--prometheus", help="Query this Prometheus instead.")] = None,
    access: PrometheusAccessOption = None,
    region: Annotated[str, typer.Option(help="The label `region` in Prometheus.")] = "",
    stable: Annotated[str, typer.Option(help="The label `version` of the stable version.")] = "",
    canary: Annotated[str, typer.Option(help="The label `version` of the canary.")] = "",
    since: Annotated[Duration, typer.Option(parser=duration, help="How far back, such as 30m.")] = Duration(minutes=30),
    state: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Go on where the last call with this file ended.")
    ] = None,
    within: Annotated[
        Duration | None,
        typer.Option(parser=duration, help="With --state: how long it may take; then inconclusive."),
    ] = None,
    output: Annotated[Report, typer.Option("-o", "--output", help="Output format.")] = Report.TEXT,
    target: Annotated[
        Path | None, typer.Option("--to", help="Write the report to this file instead of stdout.")
    ] = None,
    reporting: ReportOptions,
) -> int:
    """Judge evidence from a file or from Prometheus, for CI. Changes nothing but the file of --state.

    Each call is a test of its own, which spends the whole error budget. To ask again and again, give --state: calls
    with the same FILE are one sequential test, which reads each stretch of time once, and a fail is final.

    Exit code: 0 every gate passed, 1 one failed, 2 the evidence or a spec is wrong, 3 too little evidence,
    4 Prometheus did not answer.

    \b
    Examples:
      tidegate gate check gates.yaml --evidence evidence.jsonl
      tidegate gate check gates.yaml --evidence evidence.jsonl --output junit --to gate.xml
      tidegate gate check gates.yaml --evidence - --ci < evidence.jsonl
      tidegate gate check gates.yaml --prometheus http://localhost:9090 --region eu-west-1 --stable 6 --canary 7
      tidegate gate check gates.yaml --prometheus http://localhost:9090 --stable 6 --canary 7 --state canary-7.jsonl
    """
    from gates.reports.check_report import REPORTS
    from tidegate.cli.ci import errors_told, reports_wanted
    from tidegate.cli.commands.gate.check import PrometheusTarget, judge
    from tidegate.cli.views.gate import print_report

    reports = reports_wanted(ci=reporting.ci, junit=reporting.junit, summary=reporting.summary)
    asked = PrometheusTarget(prometheus, region, stable, canary, since, access, state, within)
    with errors_told(reports):
        judgement = judge(gates, evidence, asked)
    reports.write(REPORTS["junit"](judgement), REPORTS["markdown"](judgement))
    return print_report(judgement, output.value, target)


class CompletionApi(StrEnum):
    """As `gates.comparison.model.ApiForm`, which help need not load."""

    CHAT = "chat"
    COMPLETIONS = "completions"


@dataclass(frozen=True)
class EndpointOptions:
    """Who is compared."""

    stable: Annotated[str | None, typer.Option(metavar="URL", help="OpenAI-compatible endpoint that serves now.")] = (
        None
    )
    canary: Annotated[str | None, typer.Option(metavar="URL", help="Endpoint of the version on trial.")] = None
    stable_model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Model at --stable; default: the only one that it serves.")
    ] = None
    canary_model: Annotated[str | None, typer.Option(metavar="NAME", help="Model at --canary.")] = None
    stable_key_env: Annotated[
        str | None, typer.Option(metavar="VARIABLE", help="Environment variable with the API key of --stable.")
    ] = None
    stable_key_file: Annotated[Path | None, typer.Option(metavar="FILE", help="File with the API key of --stable.")] = (
        None
    )
    canary_key_env: Annotated[
        str | None, typer.Option(metavar="VARIABLE", help="Environment variable with the API key of --canary.")
    ] = None
    canary_key_file: Annotated[Path | None, typer.Option(metavar="FILE", help="File with the API key of --canary.")] = (
        None
    )
    api: Annotated[CompletionApi, typer.Option(help="Interface that is asked.")] = CompletionApi.CHAT


@gate.command("compare")
@spread
def compare(
    *,
    said: EndpointOptions,
    golden: Annotated[Path, typer.Option(metavar="FILE", help="Golden set: JSON lines with `prompt` and `expected`.")],
    gates: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File of kind Gates, or a delivery.yaml; default: quality, latency, errors."),
    ] = None,
    pairs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep all answers here; answers that it has are judged first.")
    ] = None,
    within: Annotated[Duration, typer.Option(parser=duration, help="Time until a verdict.")] = Duration(minutes=15),
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Pairs under way at once.")] = 4,
    timeout: Annotated[
        Duration, typer.Option(parser=duration, help="How long an endpoint may stay silent.")
    ] = Duration(minutes=1),
    output: Annotated[Report, typer.Option("-o", "--output", help="Output format.")] = Report.TEXT,
    target: Annotated[
        Path | None, typer.Option("--to", help="Write the report to this file instead of stdout.")
    ] = None,
    reporting: ReportOptions,
) -> int:
    """Compare two OpenAI-compatible endpoints: is the canary worse? Needs no cluster and no MLflow.

    Sends every prompt of the golden set to both at the same moment, again and again, and judges after each pair.
    Ends when one gate fails, or when no gate that is open can change. Names the prompts whose scores differ.
    Changes nothing.

    Exit code: 0 every gate passed, 1 one failed, 2 a file or an option is wrong, 3 too little evidence in time,
    4 an endpoint was not reached.

    \b
    Examples:
      tidegate gate compare --stable http://localhost:8000 --canary http://localhost:8001 --golden golden.jsonl
      tidegate gate compare --stable https://a.example/v1 --stable-key-env KEY --canary http://b:8000 --golden g.jsonl
      tidegate gate compare --golden golden.jsonl --pairs answers.jsonl --gates stricter.yaml
    """
    from gates.reports.check_report import REPORTS
    from tidegate.app.gates.compare import CompareOptions
    from tidegate.app.wiring.gates.endpoints import ArmOptions, refuse_one_arm
    from tidegate.cli.ci import errors_told, reports_wanted
    from tidegate.cli.commands.gate.compare import compared
    from tidegate.cli.views.gate import print_report

    reports = reports_wanted(ci=reporting.ci, junit=reporting.junit, summary=reporting.summary)
    with errors_told(reports):
        refuse_one_arm(said.stable, said.canary)
        stable = ArmOptions("stable", said.stable or "", said.stable_model, said.stable_key_env, said.stable_key_file)
        canary = ArmOptions("canary", said.canary or "", said.canary_model, said.canary_key_env, said.canary_key_file)
        asked = CompareOptions(
            golden=golden,
            gates=gates,
            answers=pairs,
            arms=(stable, canary) if said.stable else None,
            api=said.api.value,
            concurrency=concurrency,
            within=within,
            timeout=timeout,
        )
        judgement = compared(asked, moving=not reports.plain)
    reports.write(REPORTS["junit"](judgement), REPORTS["markdown"](judgement))
    return print_report(judgement, output.value, target)


@gate.command("serve")
def serve(
    gates: GatesFile,
    prometheus: Annotated[str, typer.Option("--prometheus", help="Prometheus with the metrics of both versions.")],
    access: PrometheusAccessOption = None,
    state: Annotated[Path, typer.Option("--state", metavar="FOLDER", help="Folder with a file for each session.")] = (
        Path(".tidegate/gate-sessions")
    ),
    address: Annotated[str, typer.Option(help="HOST:PORT; beyond the loopback only with --token.")] = "127.0.0.1:8095",
    token: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the bearer token, or password, of those who ask.")
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Host name that it accepts, besides IP addresses; repeatable."),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="TLS certificate.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Key of the certificate.")] = None,
    sessions: Annotated[int, typer.Option(min=1, max=100_000, help="Sessions at once.")] = 1000,
    within: Annotated[
        Duration, typer.Option(parser=duration, help="Time limit of a session, inconclusive after it.")
    ] = Duration(hours=24),
    expire: Annotated[
        Duration, typer.Option(parser=duration, help="Forget a session after this time without a question.")
    ] = Duration(hours=24),
    output: Annotated[ServeOutput, typer.Option("-o", "--output", help="Format of the lines that it prints.")] = (
        ServeOutput.TEXT
    ),
) -> int:
    """Answer over HTTP whether a canary is worse, for Argo Rollouts, Flagger and CI. Moves no traffic.

    Each canary has a session: a sequential test that reads each stretch of time from Prometheus once, so that its
    verdict stays valid however often anybody asks. Sessions survive a restart. Runs until SIGTERM or Ctrl-C.

    \b
    Examples:
      tidegate gate serve gates.yaml --prometheus http://localhost:9090
      tidegate gate serve gates.yaml --prometheus http://prometheus:9090 --address 0.0.0.0:8095 --token gate.token
    """
    from tidegate.app.gates.serve import GateServeOptions, limits_of, serve_gates
    from tidegate.app.wiring.web import ListenOptions

    listen = ListenOptions(
        address=address, token=token, hosts=host or (), certificate=tls_cert, key=tls_key, token_option="--token"
    )
    limits = limits_of(sessions, within, expire)
    as_data = output is ServeOutput.JSON
    serve_gates(GateServeOptions(gates, prometheus, access, state, listen, limits, as_data))
    return 0


@gate.command("plan")
@prints(Output.JSON, Output.YAML)
def plan(
    gates: GatesFile,
    requests_per_second: Annotated[
        float | None, typer.Option(min=0.001, help="Of all users; without it no durations are shown.")
    ] = None,
    weight: Annotated[float, typer.Option(min=0.1, max=99, help="Percent of users on the canary.")] = 5.0,
    pairs_per_second: Annotated[
        float | None, typer.Option(min=0.001, max=1000, help="Prompts sent to both versions, for paired gates.")
    ] = None,
    within: Annotated[Duration, typer.Option(parser=duration, help="Time until a verdict, such as 30m.")] = Duration(
        minutes=30
    ),
    error_rate: Annotated[str, typer.Option(help="Share of requests that fail on either version.")] = "0.5%",
    spread: Annotated[
        float, typer.Option(min=0.05, max=3, help="Standard deviation of the logarithm of latencies.")
    ] = 0.5,
    stable_pods: Annotated[
        int, typer.Option(min=1, help="Pods of the stable version; with two or more, their spread weakens evidence.")
    ] = 1,
) -> int:
    """Show how many requests and how long each gate needs, and the smallest regression it detects. Changes nothing.

    Exit code: 0 every gate would pass a healthy version in time, 2 a spec is wrong, 3 one would not; the fix is
    printed.

    \b
    Examples:
      tidegate gate plan gates.yaml --requests-per-second 20 --weight 5
      tidegate gate plan delivery.yaml --requests-per-second 200 --weight 25 --within 10m --output json
    """
    from tidegate.cli.commands.gate.plan import ExpectedTraffic, plan_gates

    expected = ExpectedTraffic(requests_per_second, weight, pairs_per_second, within, error_rate, spread, stable_pods)
    return plan_gates(gates, expected, output=given().output)
