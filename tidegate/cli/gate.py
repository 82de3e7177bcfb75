"""`tidegate gate`: judges a canary by evidence that others bring."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301, PLR0917

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.global_options import given, prints
from tidegate.cli.options import Ci, Duration, PrometheusAccessOption, ReportFiles, duration
from tidegate.cli.output import Output
from tidegate.core.errors import ExitCode, OutsideError, UsageError

if TYPE_CHECKING:
    from gates.comparison.comparison import EndpointComparison
    from gates.reports.check_report import CheckReport
    from gates.trials import Answer, Judge, Question
    from pipelines.adapters.web_server import Listener
    from pipelines.judging.gate_sets import GateSet
    from tidegate.cli.ci import Reports
    from tidegate.core.access import PrometheusEndpoint

gate = typer.Typer(name="gate", help="Judge a canary by evidence, in any orchestrator or CI.")

GatesFile = Annotated[Path, typer.Argument(metavar="GATES", help="A file of kind Gates, or a delivery.yaml.")]
A_DAY = Duration(hours=24)
PLAIN_SECONDS = 15.0
"""Between two lines of progress in a log."""


@dataclass(frozen=True)
class Since:
    """Where evidence begins."""

    begins: timedelta | datetime | None
    """So far back; or at that time; None for when the canary's series began."""
    text: str

    def __str__(self) -> str:
        return self.text


HALF_AN_HOUR = Since(Duration(minutes=30), "30m")


def _since(value: str | Since) -> Since:
    """The parser of --since; a default is one already."""
    if isinstance(value, Since):
        return value
    if value == "canary":
        return Since(None, value)
    with suppress(ValueError):
        if (moment := datetime.fromisoformat(value)).tzinfo:
            return Since(moment, value)
    return Since(duration(value), value)


@gate.command("check")
@prints(Output.JSON, Output.JUNIT, Output.MARKDOWN)
def check(
    *,
    gates: GatesFile,
    evidence: Annotated[
        Path | None, typer.Argument(help="Batches as JSON lines; `-` reads stdin.", allow_dash=True)
    ] = None,
    prometheus: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Query this Prometheus in place of EVIDENCE.")
    ] = None,
    access: PrometheusAccessOption = None,
    region: Annotated[str, typer.Option(metavar="NAME", help="The label `region` in Prometheus.")] = "",
    stable: Annotated[
        str, typer.Option(metavar="VERSION", help="The label `version` of the stable version, or labels: a=b,c=d.")
    ] = "",
    canary: Annotated[str, typer.Option(metavar="VERSION", help="The label `version` of the canary.")] = "",
    since: Annotated[
        Since,
        typer.Option(
            parser=_since,
            metavar="WHEN",
            help="How far back, such as 30m; or a time; or `canary`: since its series began.",
        ),
    ] = HALF_AN_HOUR,
    within: Annotated[
        Duration | None, typer.Option(parser=duration, help="From --since until it is inconclusive (1d).")
    ] = None,
    ci: Ci = False,
    report: ReportFiles = None,
) -> int:
    """Judge evidence from a file or from Prometheus, for CI. Changes nothing.

    With a duration as --since each call is a test of its own, which spends the whole error budget. To ask again and
    again, say a time or `canary`: then all calls are one sequential test, wherever they run, and a fail is final.

    Exit code: 0 every gate passed, 1 one failed, 2 the evidence or a spec is wrong, 3 too little evidence,
    4 Prometheus did not answer.

    \b
    Examples:
      tidegate gate check gates.yaml evidence.jsonl
      tidegate gate check gates.yaml evidence.jsonl --report gate.xml
      tidegate gate check gates.yaml - --ci < evidence.jsonl
      tidegate gate check gates.yaml --prometheus http://localhost:9090 --region eu-west-1 --stable 6 --canary 7
      tidegate gate check gates.yaml --prometheus http://localhost:9090 --stable 6 --canary 7 --since canary
    """
    from pipelines.judging.check import check_file, check_prometheus
    from tidegate.cli.ci import errors_told, reports_wanted

    reports = reports_wanted(ci=ci, files=report)
    with errors_told(reports):
        if evidence is not None and prometheus is None:
            only = {"region": region, "stable": stable, "canary": canary, "since": since != HALF_AN_HOUR}
            only |= {"within": within, "prometheus-access": access}
            if unused := [option for option, value in only.items() if value]:
                raise UsageError(f"--{unused[0]} is of no use with EVIDENCE", hint="the batches of the file say it")
            judgement = check_file(gates, evidence, tell=given().note)
        elif evidence is None and prometheus is not None:
            if within is not None and isinstance(since.begins, timedelta):
                hint = "one call judges what is there; say a time, or `canary`"
                raise UsageError(f"--within is of no use with --since {since}", hint=hint)
            judgement = check_prometheus(
                gates,
                prometheus,
                access,
                region=region,
                stable=stable,
                canary=canary,
                since=since.begins,
                within=within or A_DAY,
            )
        else:
            raise UsageError("the evidence is in a file or in Prometheus", hint="give either EVIDENCE or --prometheus")
    return _print_report(judgement, reports)


def _print_report(judgement: CheckReport, reports: Reports) -> int:
    """Print the judgement, and write the reports; returns what the worst gate means."""
    from gates.reports.check_report import EXIT_CODES, REPORTS, as_text

    reports.write(REPORTS["junit"](judgement), REPORTS["markdown"](judgement))
    output = given().output
    if output is Output.TEXT and sys.stdout.isatty():
        print(as_text(judgement, shutil.get_terminal_size().columns), end="")
    else:
        print(REPORTS[output.value](judgement), end="")
    return EXIT_CODES[judgement.outcome]


class CompletionApi(StrEnum):
    """As `gates.comparison.model.ApiForm`, which help need not load."""

    CHAT = "chat"
    COMPLETIONS = "completions"


KEY_HELP = "Variable with the API key of --{0}, or @FILE."


@gate.command("compare")
@prints(Output.JSON, Output.JUNIT, Output.MARKDOWN)
def compare(
    *,
    golden: Annotated[Path, typer.Argument(help="Golden set: JSON lines with `prompt` and `expected`.")],
    stable: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="OpenAI-compatible endpoint that serves now.")
    ] = None,
    canary: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Endpoint of the version on trial.")] = None,
    stable_model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Model at --stable; default: the only one that it serves.")
    ] = None,
    canary_model: Annotated[str | None, typer.Option(metavar="NAME", help="Model at --canary.")] = None,
    stable_key: Annotated[str | None, typer.Option(metavar="VARIABLE", help=KEY_HELP.format("stable"))] = None,
    canary_key: Annotated[str | None, typer.Option(metavar="VARIABLE", help=KEY_HELP.format("canary"))] = None,
    api: Annotated[CompletionApi, typer.Option(help="Interface that is asked.")] = CompletionApi.CHAT,
    gates: Annotated[
        Path | None, typer.Option(help="File of kind Gates, or a delivery.yaml; default: quality, latency, errors.")
    ] = None,
    pairs: Annotated[
        Path | None, typer.Option(help="Keep all answers here; answers that it has are judged first.")
    ] = None,
    within: Annotated[Duration, typer.Option(parser=duration, help="Time until a verdict.")] = Duration(minutes=15),
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Pairs under way at once.")] = 4,
    timeout: Annotated[
        Duration, typer.Option(parser=duration, help="How long an endpoint may stay silent.")
    ] = Duration(minutes=1),
    ci: Ci = False,
    report: ReportFiles = None,
) -> int:
    """Compare two OpenAI-compatible endpoints: is the canary worse? Needs no cluster and no MLflow.

    Sends every prompt of the golden set to both at the same moment, again and again, and judges after each pair.
    Ends when one gate fails, or when no gate that is open can change. Names the prompts whose scores differ.
    Changes nothing.

    Exit code: 0 every gate passed, 1 one failed, 2 a file or an option is wrong, 3 too little evidence in time,
    4 an endpoint was not reached.

    \b
    Examples:
      tidegate gate compare golden.jsonl --stable http://localhost:8000 --canary http://localhost:8001
      tidegate gate compare golden.jsonl --stable https://a.example/v1 --stable-key KEY --canary http://b:8000
      tidegate gate compare golden.jsonl --pairs answers.jsonl --gates stricter.yaml
    """
    from gates.adapters import compare as endpoints
    from gates.comparison.model import ApiForm
    from pipelines.judging.gate_sets import comparison_of
    from tidegate.cli.ci import errors_told, reports_wanted

    reports = reports_wanted(ci=ci, files=report)
    with errors_told(reports), _progress(moving=not reports.plain and sys.stderr.isatty()) as look:
        if (stable is None) != (canary is None):
            missing = "--stable" if stable is None else "--canary"
            raise UsageError(f"{missing}: found nothing; expected the address of the other endpoint")
        named = (("stable", stable, stable_model, stable_key), ("canary", canary, canary_model, canary_key))
        first, second = (
            endpoints.Arm(name, url or "", model, key, ApiForm(api.value)) for name, url, model, key in named
        )
        judgement = endpoints.compare(
            comparison_of(gates, golden),
            golden,
            (first, second) if stable else None,
            pairs,
            folder=(gates or golden).parent,
            concurrency=concurrency,
            within=within,
            timeout=timeout,
            tell=given().note,
            look=look,
        )
    return _print_report(judgement, reports)


@contextmanager
def _progress(*, moving: bool) -> Iterator[Callable[[EndpointComparison], None]]:
    """Say where a comparison stands: in a line of the terminal that changes, or now and then in a log."""
    if moving:
        from tidegate.cli.views.console import PlainConsole

        with PlainConsole(stderr=True).status("asking both endpoints") as status:
            yield lambda comparison: status.update(_standing(comparison))
        return
    told = time.monotonic()

    def look(comparison: EndpointComparison) -> None:
        nonlocal told
        if time.monotonic() >= told + PLAIN_SECONDS:
            told = time.monotonic()
            given().note(_standing(comparison))

    yield look


def _standing(comparison: EndpointComparison) -> str:
    gates = ", ".join(f"{verdict.gate} {verdict.outcome}" for verdict in comparison.verdicts())
    alike = "" if comparison.likeness is None else f", {comparison.likeness:.2f} alike"
    count = len(comparison.times)
    return f"{count:,} {'pair' if count == 1 else 'pairs'}{alike}: {gates}"


@gate.command("serve")
@prints(Output.JSON)
def serve(
    gates: GatesFile,
    prometheus: Annotated[str, typer.Option(metavar="ADDRESS", help="Prometheus with the metrics of both versions.")],
    access: PrometheusAccessOption = None,
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where it listens; beyond the loopback only with --token.")
    ] = "127.0.0.1:8095",
    token: Annotated[
        Path | None, typer.Option(help="File with the bearer token, or password, of those who ask.")
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Host name that it accepts, besides IP addresses; repeatable."),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="TLS certificate.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Key of the certificate.")] = None,
    within: Annotated[
        Duration, typer.Option(parser=duration, help="Time limit of a trial, inconclusive after it.")
    ] = A_DAY,
) -> int:
    """Answer over HTTP whether a canary is worse, for Argo Rollouts, Flagger and CI. Moves no traffic, keeps nothing.

    A trial begins with the canary's series. From there each stretch of time is read from Prometheus once and judged by
    one sequential test, so that the verdict stays valid however often anybody asks, and whichever replica is asked.
    Runs until SIGTERM or Ctrl-C.

    \b
    Examples:
      tidegate gate serve gates.yaml --prometheus http://localhost:9090
      tidegate gate serve gates.yaml --prometheus http://prometheus:9090 --address 0.0.0.0:8095 --token gate.token
    """
    from gates.adapters.prometheus_queries import evidence_at
    from gates.trials import Judge
    from pipelines.adapters.web_server import ListenOptions, guarded_listener
    from pipelines.judging.gate_sets import read_gates
    from tidegate.core.access import endpoint_at
    from tidegate.core.clock import SystemClock

    if not timedelta(minutes=1) <= within <= timedelta(days=30):
        raise UsageError(f"--within {within}: expected 1m to 30d")
    listen = ListenOptions(address, None, token, host or (), tls_cert, tls_key, "--token")
    judged, at = read_gates(gates, of_prometheus=True), endpoint_at(prometheus, access)
    terms = judged.terms("proxy")
    judge = Judge(
        terms,
        judged.look,
        evidence_at(at, judged.sources, terms),
        SystemClock(),
        service=judged.service,
        within=within,
        changed=_tell_data if given().output is Output.JSON else _tell,
    )
    with guarded_listener(listen) as listener, suppress(asyncio.CancelledError):
        asyncio.run(_answer(judged, judge, listener, at))
    return 0


async def _answer(judged: GateSet, judge: Judge, listener: Listener, prometheus: PrometheusEndpoint) -> None:
    from pipelines.judging.app import JudgeApp
    from tidegate.core.adapters.prometheus import PrometheusClient
    from tidegate.core.process import cancelled_by_signals
    from tidegate.core.threads import call_in_thread

    note, listen = given().note, listener.options
    app = JudgeApp(judge, needs_region=judged.by_region, refused=note)
    async with listener.answering(app.behind_door(hosts=listen.names(None), password=listen.password)):
        note(f"listening on {listener.address} for {judged.name}: {', '.join(judged.terms('proxy').gates)}")
        for gate_name in judged.not_asked:
            note(f"gate {gate_name} is not asked here: it needs more than a Prometheus")
        async with cancelled_by_signals("no new requests"):
            try:
                await call_in_thread(PrometheusClient(prometheus, timeout_seconds=5).query, "vector(1)")
            except OutsideError as error:
                note(f"{error}; until it answers, verdicts are `error`")
            await asyncio.Event().wait()


def _tell(question: Question, answer: Answer) -> None:
    given().note(f"{question}: {answer.outcome}: {answer.gate}: {answer.sentence}")


def _tell_data(question: Question, answer: Answer) -> None:
    print(json.dumps({**question.model_dump(mode="json"), **answer.model_dump(mode="json")}), flush=True)


def plan_gates(
    gates: Path,
    *,
    requests_per_second: float | None,
    weight: float,
    pairs_per_second: float | None,
    within: timedelta,
    error_rate: str,
    spread: float,
    stable_pods: int,
) -> int:
    """Print what every gate of a file needs; the exit code is 3 when one would not pass a healthy version in time."""
    from gates.planning.forecast import forecasts, with_proposals
    from gates.traffic import Assumptions, Exposure
    from pipelines.judging.gate_sets import read_gates
    from tidegate.cli.output import print_data
    from tidegate.cli.views.plan import print_forecasts

    judged = read_gates(gates)
    terms = judged.planned(within)
    exposure = Exposure(
        requests_per_second=requests_per_second,
        percent=weight if terms.mirrored is None else terms.mirrored * 100,
        mirrored=terms.mirrored is not None,
        pairs_per_second=pairs_per_second,
        within_seconds=within.total_seconds(),
        look_seconds=judged.look.total_seconds(),
    )
    assumed = Assumptions(error_rate=_share(error_rate), spread=spread, stable_pods=stable_pods)
    found = [with_proposals(terms, forecast, exposure, assumed) for forecast in forecasts(terms, exposure, assumed)]
    if given().output.is_data:
        told = [forecast.model_dump(mode="json") for forecast in found]
        print_data({"name": judged.name, "expected": assumed.model_dump(), "gates": told}, given().output)
    else:
        print_forecasts(judged.name, found, assumed)
    return ExitCode.DELIVERED if all(forecast.reachable for forecast in found) else ExitCode.INCONCLUSIVE


def _share(percent: str) -> float:
    try:
        share = float(percent.removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not (percent.endswith("%") and 0 <= share < 1):
        raise UsageError(f"--error-rate: got {percent}", hint="a percent such as 0.5%")
    return share
