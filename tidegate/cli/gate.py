"""`tidegate gate`: judges a canary by evidence that others bring."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301, PLR0917

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
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
    from gates.sessions.model import SessionAnswer
    from gates.sessions.registry import Sessions
    from pipelines.adapters.listeners import Listener
    from pipelines.judging.gate_sets import GateSet
    from tidegate.cli.ci import Reports
    from tidegate.core.access import PrometheusEndpoint

gate = typer.Typer(name="gate", help="Judge a canary by evidence, in any orchestrator or CI.")

GatesFile = Annotated[Path, typer.Argument(metavar="GATES", help="A file of kind Gates, or a delivery.yaml.")]
HALF_AN_HOUR = Duration(minutes=30)
SWEEP_SECONDS = 60.0
"""Between two looks for sessions that nobody asks any more."""
PLAIN_SECONDS = 15.0
"""Between two lines of progress in a log."""


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
    stable: Annotated[str, typer.Option(metavar="VERSION", help="The label `version` of the stable version.")] = "",
    canary: Annotated[str, typer.Option(metavar="VERSION", help="The label `version` of the canary.")] = "",
    since: Annotated[Duration, typer.Option(parser=duration, help="How far back, such as 30m.")] = HALF_AN_HOUR,
    session: Annotated[Path | None, typer.Option(help="Continue where the last call with this file ended.")] = None,
    within: Annotated[
        Duration | None,
        typer.Option(parser=duration, help="With --session: how long it may take; then inconclusive."),
    ] = None,
    ci: Ci = False,
    report: ReportFiles = None,
) -> int:
    """Judge evidence from a file or from Prometheus, for CI. Changes nothing but the file of --session.

    Each call is a test of its own, which spends the whole error budget. To ask again and again, give --session: calls
    with the same FILE are one sequential test, which reads each stretch of time once, and a fail is final.

    Exit code: 0 every gate passed, 1 one failed, 2 the evidence or a spec is wrong, 3 too little evidence,
    4 Prometheus did not answer.

    \b
    Examples:
      tidegate gate check gates.yaml evidence.jsonl
      tidegate gate check gates.yaml evidence.jsonl --report gate.xml
      tidegate gate check gates.yaml - --ci < evidence.jsonl
      tidegate gate check gates.yaml --prometheus http://localhost:9090 --region eu-west-1 --stable 6 --canary 7
      tidegate gate check gates.yaml --prometheus http://localhost:9090 --stable 6 --canary 7 --session canary-7.jsonl
    """
    from pipelines.judging.check import check_file, check_prometheus
    from tidegate.cli.ci import errors_told, reports_wanted

    reports = reports_wanted(ci=ci, files=report)
    with errors_told(reports):
        if evidence is not None and prometheus is None:
            only = {"region": region, "stable": stable, "canary": canary, "since": since != HALF_AN_HOUR}
            only |= {"session": session, "within": within, "prometheus-access": access}
            if unused := [option for option, value in only.items() if value]:
                raise UsageError(f"--{unused[0]} is of no use with EVIDENCE", hint="the batches of the file say it")
            judgement = check_file(gates, evidence, tell=given().note)
        elif evidence is None and prometheus is not None:
            if within is not None and session is None:
                raise UsageError("--within is of no use without --session", hint="one call judges what is there")
            judgement = check_prometheus(
                gates,
                prometheus,
                access,
                region=region,
                stable=stable,
                canary=canary,
                since=since,
                session=session,
                within=within,
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
    sessions: Annotated[int, typer.Option(min=1, max=100_000, help="Sessions at once.")] = 1000,
    within: Annotated[
        Duration, typer.Option(parser=duration, help="Time limit of a session, inconclusive after it.")
    ] = Duration(hours=24),
    expire: Annotated[
        Duration, typer.Option(parser=duration, help="Forget a session after this time without a question.")
    ] = Duration(hours=24),
) -> int:
    """Answer over HTTP whether a canary is worse, for Argo Rollouts, Flagger and CI. Moves no traffic.

    Each canary has a session: a sequential test that reads each stretch of time from Prometheus once, so that its
    verdict stays valid however often anybody asks. Sessions are files in --state, and survive a restart. Runs until
    SIGTERM or Ctrl-C.

    \b
    Examples:
      tidegate gate serve gates.yaml --prometheus http://localhost:9090
      tidegate gate serve gates.yaml --prometheus http://prometheus:9090 --address 0.0.0.0:8095 --token gate.token
    """
    from gates.adapters.prometheus_queries import evidence_at
    from gates.sessions.journal import owned
    from gates.sessions.model import SessionLimits
    from gates.sessions.registry import Sessions, SessionTerms
    from pipelines.adapters.listeners import ListenOptions, guarded_listener
    from pipelines.judging.gate_sets import read_gates
    from tidegate.core.access import endpoint_at
    from tidegate.core.clock import SystemClock

    for option, value in (("--within", within), ("--expire", expire)):
        if not timedelta(minutes=1) <= value <= timedelta(days=30):
            raise UsageError(f"{option} {value}: expected 1m to 30d")
    listen = ListenOptions(address, None, token, host or (), tls_cert, tls_key, "--token")
    judged, at = read_gates(gates, of_prometheus=True), endpoint_at(prometheus, access)
    terms, folder = judged.terms("proxy"), given().state / "gate-sessions"
    with owned(folder / "lock", f"--state {given().state}", "gate serve"), guarded_listener(listen) as listener:
        kept = Sessions(
            SessionTerms(terms, judged.look, judged.service),
            evidence_at(at, judged.sources, terms),
            folder,
            SystemClock(),
            limits=SessionLimits(sessions=sessions, within=within, expire=expire),
            changed=_tell_data if given().output is Output.JSON else _tell,
        )
        with suppress(asyncio.CancelledError):
            asyncio.run(_answer(judged, kept, listener, at))
    return 0


async def _answer(judged: GateSet, sessions: Sessions, listener: Listener, prometheus: PrometheusEndpoint) -> None:
    from pipelines.judging.app import JudgeApp
    from tidegate.core.adapters.prometheus import PrometheusClient
    from tidegate.core.process import cancelled_by_signals
    from tidegate.core.threads import call_in_thread

    note, listen = given().note, listener.options
    app = JudgeApp(sessions, retry_seconds=judged.look.total_seconds(), needs_region=judged.by_region, refused=note)
    async with listener.answering(app.behind_door(hosts=listen.names(None), password=listen.password)):
        note(f"listening on {listener.address} for {judged.name}: {', '.join(judged.terms('proxy').gates)}")
        for gate_name in judged.not_asked:
            note(f"gate {gate_name} is not asked here: it needs more than a Prometheus")
        if standing := await call_in_thread(sessions.count):
            note(f"{_sessions(standing)} of before")
        async with cancelled_by_signals("no new requests; sessions are kept"):
            try:
                await call_in_thread(PrometheusClient(prometheus, timeout_seconds=5).query, "vector(1)")
            except OutsideError as error:
                note(f"{error}; until it answers, verdicts are `error`")
            while True:
                await asyncio.sleep(SWEEP_SECONDS)
                if gone := await call_in_thread(sessions.sweep):
                    note(f"{_sessions(gone)} forgotten: nobody asked")


def _sessions(count: int) -> str:
    return f"{count:,} {'session' if count == 1 else 'sessions'}"


def _tell(answer: SessionAnswer) -> None:
    given().note(f"{answer.key}: {answer.outcome}: {answer.reason}")


def _tell_data(answer: SessionAnswer) -> None:
    print(answer.model_dump_json(), flush=True)


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
