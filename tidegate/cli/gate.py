"""`tidegate gate`: judges a canary by evidence that others bring."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option, Typer

from gates.model import ApiForm
from tidegate.cli.options import Ci, Duration, Hosts, PrometheusAccessOption, TlsCert, TlsKey, duration
from tidegate.cli.settings import Output, Settings, given, prints
from tidegate.core.errors import ExitCode, OutsideError, UsageError
from tidegate.core.units import parse_duration

if TYPE_CHECKING:
    from gates.comparison import EndpointComparison
    from gates.reports.check_report import CheckReport
    from gates.trials import Answer, Judge, Question
    from pipelines.adapters.web_server import Listener
    from pipelines.judging.gate_sets import GateSet
    from tidegate.core.access import PrometheusEndpoint

gate = Typer(name="gate", help="Judge a canary by evidence, in any orchestrator or CI.")

GatesFile = Annotated[Path, Argument(metavar="GATES", help="A file of kind Gates, or a delivery.yaml.")]
A_DAY = Duration(hours=24)
HALF_AN_HOUR = "30m"
PROGRESS_SECONDS = 10.0
"""Between two lines that say where a comparison stands."""


@gate.command("check")
@prints(Output.JSON, Output.JUNIT, Output.MARKDOWN)
def check(
    *,
    gates: GatesFile,
    evidence: Annotated[Path | None, Argument(help="Batches as JSON lines; `-` reads stdin.", allow_dash=True)] = None,
    prometheus: Annotated[
        str | None, Option(metavar="ADDRESS", help="Query this Prometheus in place of EVIDENCE.")
    ] = None,
    access: PrometheusAccessOption = None,
    region: Annotated[str, Option(metavar="NAME", help="The label `region` in Prometheus.")] = "",
    stable: Annotated[
        str, Option(metavar="VERSION", help="The label `version` of the stable version, or labels: a=b,c=d.")
    ] = "",
    canary: Annotated[str, Option(metavar="VERSION", help="The label `version` of the canary.")] = "",
    since: Annotated[
        str, Option(metavar="WHEN", help="How far back, such as 30m; or a time; or `canary`: since its series began.")
    ] = HALF_AN_HOUR,
    within: Annotated[
        Duration | None, Option(parser=duration, help="From --since until it is inconclusive (1d).")
    ] = None,
    ci: Ci = False,
) -> int:
    """Judge evidence from a file or from Prometheus, for CI. Changes nothing.

    With a duration as --since each call is a test of its own, which spends the whole error budget. To ask again and
    again, say a time or `canary`: then all calls are one sequential test, wherever they run, and a fail is final.

    Exit code: 0 every gate passed, 1 one failed, 2 the evidence or a spec is wrong, 3 too little evidence,
    4 Prometheus did not answer.

    \b
    Examples:
      tidegate gate check gates.yaml evidence.jsonl
      tidegate gate check gates.yaml - --ci < evidence.jsonl
      tidegate gate check gates.yaml --prometheus http://localhost:9090 --region eu-west-1 --stable 6 --canary 7
      tidegate gate check gates.yaml --prometheus http://localhost:9090 --stable 6 --canary 7 --since canary
    """
    from pipelines.judging.check import check_file, check_prometheus
    from tidegate.cli.ci import errors_reported

    begins = _since(since)
    with errors_reported(ci):
        if (evidence is None) == (prometheus is None):
            raise UsageError("the evidence is in a file or in Prometheus", hint="give either EVIDENCE or --prometheus")
        if evidence is not None:
            only: dict[str, Any] = {"region": region, "stable": stable, "canary": canary}
            only |= {"since": since != HALF_AN_HOUR, "within": within, "prometheus-access": access}
            if unused := [option for option, value in only.items() if value]:
                raise UsageError(f"--{unused[0]} is of no use with EVIDENCE", hint="the batches of the file say it")
            return _print_report(check_file(gates, evidence, tell=given().note), ci=ci)
        if within is not None and isinstance(begins, timedelta):
            hint = "one call judges what is there; say a time, or `canary`"
            raise UsageError(f"--within is of no use with --since {since}", hint=hint)
        versions = {"region": region, "stable": stable, "canary": canary}
        judgement = check_prometheus(gates, prometheus or "", access, **versions, since=begins, within=within or A_DAY)
    return _print_report(judgement, ci=ci)


def _since(text: str) -> timedelta | datetime | None:
    """So far back; or at that time; None for when the canary's series began."""
    with suppress(ValueError):
        if (moment := datetime.fromisoformat(text)).tzinfo:
            return moment
    try:
        return None if text == "canary" else parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--since: found {text!r}; expected `canary`, a time with its zone, or {error}") from error


def _print_report(judgement: CheckReport, *, ci: bool) -> int:
    """Print the judgement, and with `ci` write the reports; returns what the worst gate means."""
    from gates.reports.check_report import EXIT_CODES, REPORTS, as_text
    from tidegate.cli.ci import write_reports

    if ci:
        write_reports(REPORTS["junit"](judgement), REPORTS["markdown"](judgement))
    output = given().output
    if output is Output.TEXT and sys.stdout.isatty():
        print(as_text(judgement, shutil.get_terminal_size().columns), end="")
    else:
        print(REPORTS[output.value](judgement), end="")
    return EXIT_CODES[judgement.outcome]


KEY_HELP = "Variable with the API key of --{0}, or @FILE."


@gate.command("compare")
@prints(Output.JSON, Output.JUNIT, Output.MARKDOWN)
def compare(
    *,
    golden: Annotated[Path, Argument(help="Golden set: JSON lines with `prompt` and `expected`.")],
    stable: Annotated[str, Option(metavar="ADDRESS", help="OpenAI-compatible endpoint that serves now.")],
    canary: Annotated[str, Option(metavar="ADDRESS", help="Endpoint of the version on trial.")],
    stable_model: Annotated[
        str | None, Option(metavar="NAME", help="Model at --stable; default: the only one that it serves.")
    ] = None,
    canary_model: Annotated[str | None, Option(metavar="NAME", help="Model at --canary.")] = None,
    stable_key: Annotated[str | None, Option(metavar="VARIABLE", help=KEY_HELP.format("stable"))] = None,
    canary_key: Annotated[str | None, Option(metavar="VARIABLE", help=KEY_HELP.format("canary"))] = None,
    api: Annotated[ApiForm, Option(help="Interface that is asked.")] = ApiForm.CHAT,
    gates: Annotated[
        Path | None, Option(help="File of kind Gates, or a delivery.yaml; default: quality, latency, errors.")
    ] = None,
    within: Annotated[Duration, Option(parser=duration, help="Time until a verdict.")] = Duration(minutes=15),
    concurrency: Annotated[int, Option(min=1, max=256, help="Pairs under way at once.")] = 4,
    timeout: Annotated[Duration, Option(parser=duration, help="How long an endpoint may stay silent.")] = Duration(
        minutes=1
    ),
    ci: Ci = False,
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
      tidegate gate compare golden.jsonl --stable http://a:8000 --canary http://b:8000 --gates gates.yaml
    """
    from gates.adapters import compare as endpoints
    from pipelines.judging.gate_sets import comparison_of
    from tidegate.cli.ci import errors_reported

    told = time.monotonic()

    def look(comparison: EndpointComparison) -> None:
        nonlocal told
        if time.monotonic() >= told + PROGRESS_SECONDS:
            told = time.monotonic()
            given().note(_standing(comparison))

    with errors_reported(ci):
        first = endpoints.Arm("stable", stable, stable_model, stable_key, api)
        second = endpoints.Arm("canary", canary, canary_model, canary_key, api)
        judgement = endpoints.compare(
            comparison_of(gates, golden),
            golden,
            (first, second),
            concurrency=concurrency,
            within=within,
            timeout=timeout,
            tell=given().note,
            look=look,
        )
    return _print_report(judgement, ci=ci)


def _standing(comparison: EndpointComparison) -> str:
    gates = ", ".join(f"{verdict.gate} {verdict.outcome}" for verdict in comparison.verdicts())
    alike = "" if comparison.likeness is None else f", {comparison.likeness:.2f} alike"
    count = len(comparison.times)
    return f"{count:,} {'pair' if count == 1 else 'pairs'}{alike}: {gates}"


@gate.command("serve")
@prints(Output.JSON)
def serve(
    gates: GatesFile,
    prometheus: Annotated[str, Option(metavar="ADDRESS", help="Prometheus with the metrics of both versions.")],
    access: PrometheusAccessOption = None,
    address: Annotated[
        str, Option(metavar="HOST:PORT", help="Where it listens; beyond the loopback only with --token.")
    ] = "127.0.0.1:8095",
    token: Annotated[Path | None, Option(help="File with the bearer token, or password, of those who ask.")] = None,
    host: Hosts = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    within: Annotated[Duration, Option(parser=duration, help="Time limit of a trial, inconclusive after it.")] = A_DAY,
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
    from pipelines.adapters.web_server import ListenOptions, listening
    from pipelines.judging.check import judge_of
    from pipelines.judging.gate_sets import read_gates
    from tidegate.core.access import endpoint_at

    if not timedelta(minutes=1) <= within <= timedelta(days=30):
        raise UsageError(f"--within {within}: expected 1m to 30d")
    listen = ListenOptions(address, token, host or (), tls_cert, tls_key)
    judged, at = read_gates(gates, of_prometheus=True), endpoint_at(prometheus, access)
    # Requests are answered without this context.
    tell = partial(_tell, given())
    judge = judge_of(judged, at, within=within, service=judged.service, changed=tell)
    with listening(listen, guarded=True) as listener, suppress(asyncio.CancelledError):
        asyncio.run(_answer(judged, judge, listener, at))
    return ExitCode.DELIVERED


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


def _tell(chosen: Settings, question: Question, answer: Answer) -> None:
    if chosen.output is Output.JSON:
        print(json.dumps({**question.model_dump(mode="json"), **answer.model_dump(mode="json")}), flush=True)
    else:
        chosen.note(f"{question}: {answer.outcome}: {answer.gate}: {answer.sentence}")
