"""`tidegate gate check`, `plan`, `stream` and `replay`: the judge of a canary for any orchestrator and any CI."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from gates.evidence.batch import Batch, Source
from gates.model import ArmKey, GateOutcome
from gates.planning.forecast import forecasts, with_proposals
from gates.reports.check_report import CheckReport
from gates.reports.verdict_stream import EXIT_CODES, VerdictLine, VerdictStream
from gates.sequential_test import AnalysisPlan
from gates.traffic import Assumptions, Exposure
from gates.transcript import BatchLine, Replay, ReplayDifference, TermsLine, VerdictsLine, read
from pipelines.events.artifacts import FOLDER
from pipelines.state import StateFolder
from tidegate.app.gates.continued import ContinuedCheck, continued
from tidegate.app.process import note
from tidegate.app.wiring.gates.gate_sets import GateSet, read_gates
from tidegate.app.wiring.gates.prometheus import evidence_in
from tidegate.app.wiring.stores import open_deliveries
from tidegate.cli.output import OutputForm, print_data
from tidegate.cli.views.plan import print_forecasts
from tidegate.core.clock import SystemClock
from tidegate.core.errors import ExitCode, UsageError
from tidegate.core.spec import Problem, SpecError, text_in


@dataclass(frozen=True)
class PrometheusTarget:
    """Of whom Prometheus is asked; `url` is None when it is not."""

    url: str | None = None
    region: str = ""
    stable: str = ""
    canary: str = ""
    since: timedelta = timedelta(minutes=30)
    access: Path | None = None
    """How it is told who asks."""
    state: Path | None = None
    """The file of a test that several calls carry on; None where one call is all."""
    within: timedelta | None = None
    """From the begin of that test until what has no verdict is inconclusive."""


def judge(gates: Path, evidence: Path | None, asked: PrometheusTarget) -> CheckReport:
    """What every gate says of the evidence.

    Raises:
        UsageError: the evidence is nowhere, or in two places.
        SpecError: a gate or a line of the evidence is wrong.
    """
    judged = read_gates(gates, of_prometheus=evidence is None and asked.url is not None)
    if evidence is not None and asked.url is None:
        refuse_unused(asked)
        return _of_lines(judged, evidence)
    if evidence is None and asked.url is not None:
        return _of_prometheus(judged, asked.url, asked)
    raise UsageError("the evidence is in a file or in Prometheus", hint="give either --evidence or --prometheus")


def refuse_unused(asked: PrometheusTarget) -> None:
    """Raises UsageError when an option is given that only a Prometheus has a use for."""
    options = {name: name for name in ("region", "stable", "canary", "since", "state", "within")}
    for name, option in {**options, "access": "prometheus-access"}.items():
        if getattr(asked, name) != getattr(PrometheusTarget, name):
            raise UsageError(f"--{option} is of no use with --evidence", hint="the batches of the file say it")


def _of_lines(judged: GateSet, evidence: Path) -> CheckReport:
    """Raises SpecError with every line that is no batch: what CI hands us as a file has to be whole."""
    stdin = str(evidence) == "-"
    stream = VerdictStream(judged.terms("users"), file="stdin" if stdin else str(evidence))
    wrong: list[Problem] = []
    times: list[float] = []
    for line in _lines(evidence, stdin=stdin):
        answer = stream.answer(line)
        if answer is None:
            continue
        wrong += [Problem(stream.file, odd.line, odd.field, odd.found, odd.expected) for odd in answer.problems]
        if answer.time is not None:
            times = [*times[:1], answer.time]
    if wrong:
        raise SpecError(wrong)
    return _judgement(judged, stream, times, asked_of="users")


def _lines(evidence: Path, *, stdin: bool) -> Iterator[bytes]:
    if stdin:
        yield from sys.stdin.buffer
        return
    try:
        with evidence.open("rb") as file:
            yield from file
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        found = "no such file" if missing else (error.strerror or "an unreadable file").lower()
        expected = "a file of batches, one a line"
        raise SpecError([Problem(str(evidence), 0 if missing else 1, "", found, expected)]) from error


def _of_prometheus(judged: GateSet, url: str, asked: PrometheusTarget) -> CheckReport:
    """Raises OutsideError when Prometheus is not there."""
    by_region = judged.by_region
    if not (asked.stable and asked.canary and (asked.region or not by_region)):
        options = "--region, --stable and --canary" if by_region else "--stable and --canary"
        raise UsageError(
            f"--prometheus needs {'a region and ' if by_region else ''}two versions", hint=f"give {options}"
        )
    terms = judged.terms("proxy")
    source = evidence_in(url, asked.access, judged, terms)
    stable = ArmKey(region=asked.region, role="stable", version=asked.stable)
    canary = ArmKey(region=asked.region, role="canary", version=asked.canary)
    if asked.state is not None:
        check = ContinuedCheck(
            judged.name, terms, judged.look, stable, canary, asked.since, asked.within, judged.not_asked
        )
        return continued(check, source, asked.state, SystemClock())
    if asked.within is not None:
        raise UsageError("--within is of no use without --state", hint="one call judges what is there")
    stream = VerdictStream(terms)
    until = datetime.now(UTC) - source.settles_within
    times: list[float] = []
    for start, end in _windows(until - asked.since, until, judged.look):
        batch: Batch = source.batch(stable, canary, start, end)
        stream.take(batch)
        times = [*times[:1], batch.time]
    return _judgement(judged, stream, times, asked_of="proxy")


def _windows(since: datetime, until: datetime, look: timedelta) -> Iterator[tuple[datetime, datetime]]:
    """Windows that touch and end at `until`; the first begins at `since` or up to a look later."""
    start = until - (until - since) // look * look
    while start < until:
        yield start, start + look
        start += look


def _judgement(judged: GateSet, stream: VerdictStream, times: list[float], *, asked_of: Source) -> CheckReport:
    for source in sorted(stream.unasked):
        note(f"no gate listens to `{source}`, only to `{asked_of}`; name it under `sources` in a file of kind Gates")
    final = stream.final()
    return CheckReport(
        name=judged.name,
        outcome=final.outcome,
        batches=final.batch,
        since=times[0] if times else None,
        until=times[-1] if times else None,
        verdicts=final.verdicts,
        not_asked=judged.not_asked,
    )


@dataclass(frozen=True)
class ExpectedTraffic:
    """Traffic as it was typed."""

    requests_per_second: float | None
    weight: float
    pairs_per_second: float | None
    within: timedelta
    error_rate: str
    spread: float
    stable_pods: int


def plan_gates(gates: Path, expected: ExpectedTraffic, *, output: OutputForm) -> int:
    """Tell what every gate needs; the exit code is 3 when one would not pass a healthy version in time."""
    judged = read_gates(gates)
    terms = judged.planned(expected.within)
    exposure = _exposure(terms, expected, judged.look)
    assumed = Assumptions(
        error_rate=_error_rate(expected.error_rate), spread=expected.spread, stable_pods=expected.stable_pods
    )
    found = [with_proposals(terms, forecast, exposure, assumed) for forecast in forecasts(terms, exposure, assumed)]
    if output.is_data:
        told = [forecast.model_dump(mode="json") for forecast in found]
        print_data({"name": judged.name, "expected": assumed.model_dump(), "gates": told}, output)
    else:
        print_forecasts(judged.name, found, assumed)
    return ExitCode.DELIVERED if all(forecast.reachable for forecast in found) else ExitCode.INCONCLUSIVE


def _exposure(terms: AnalysisPlan, expected: ExpectedTraffic, look: timedelta) -> Exposure:
    return Exposure(
        requests_per_second=expected.requests_per_second,
        percent=expected.weight if terms.mirrored is None else terms.mirrored * 100,
        mirrored=terms.mirrored is not None,
        pairs_per_second=expected.pairs_per_second,
        within_seconds=expected.within.total_seconds(),
        look_seconds=look.total_seconds(),
    )


def _error_rate(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not (text.endswith("%") and 0 <= share < 1):
        raise UsageError(f"--error-rate: got {text}", hint="a percent such as 0.5%")
    return share


FINAL = (GateOutcome.PASS, GateOutcome.FAIL)


def stream_verdicts(gates: Path, *, stop: bool) -> int:
    """Answer until the input ends, or until a final verdict when `stop` is set."""
    stream = VerdictStream(read_gates(gates).terms("users"))
    try:
        _answer_lines(stream, sys.stdin.buffer, sys.stdout.buffer, stop=stop)
    except BrokenPipeError:
        # Nobody listens any more. Python would try to flush at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OUTSIDE
    final = stream.final()
    note(_final_line(final, stream))
    return EXIT_CODES[final.outcome]


def _answer_lines(stream: VerdictStream, lines: BinaryIO, answers: BinaryIO, *, stop: bool) -> None:
    told: set[str] = set()
    for line in lines:
        answer = stream.answer(line)
        if answer is None:
            continue
        answers.write(answer.written().encode() + b"\n")
        answers.flush()
        for source in sorted(stream.unasked - told):
            note(f"no gate listens to `{source}`; name it under `sources` in a file of kind Gates")
        told |= stream.unasked
        if stop and answer.outcome in FINAL:
            return


def _final_line(final: VerdictLine, stream: VerdictStream) -> str:
    reasons = [f"{verdict.gate}: {verdict.reason}" for verdict in final.verdicts if verdict.outcome == final.outcome]
    if final.outcome is GateOutcome.ERROR:
        reasons = [f"line {stream.lines} could not be read"]
    batches = f"{final.batch:,} {'batch' if final.batch == 1 else 'batches'}"
    return f"{final.outcome} after {batches}: {'; '.join(reasons)}"


@dataclass(frozen=True)
class VerdictChange:
    """A gate says something else than at its last look."""

    time: float | None
    """Unix time of the last batch, in seconds; None before the first."""
    step: str
    gate: str
    outcome: str
    reason: str

    def __str__(self) -> str:
        moment = "before any evidence" if self.time is None else f"{datetime.fromtimestamp(self.time, UTC):%F %T}"
        return f"{moment}  {self.step}  {self.gate} {self.outcome}: {self.reason}"


@dataclass
class ReplayedTest:
    """What came of one trial."""

    trial: str = ""
    batches: int = 0
    verdicts: int = 0
    changes: list[VerdictChange] = field(default_factory=list)
    differences: list[ReplayDifference] = field(default_factory=list)

    def __str__(self) -> str:
        if self.differences:
            others = f" (and {len(self.differences) - 1} more)" if len(self.differences) > 1 else ""
            return f"not the same: {self.differences[0]}{others}"
        return f"same verdicts, bit for bit: {self.batches:,} batches, {self.verdicts:,} verdicts"


def replay_recorded(
    recorded: str, stage: str | None, state: Path, tracking_uri: str | None, *, output: OutputForm
) -> int:
    """Replay every transcript that is meant; 1 when a verdict differs."""
    held: list[ReplayedTest] = []
    with _transcripts(recorded, stage, StateFolder(state), tracking_uri) as paths:
        for path in paths:
            held.append(_replay_one(path))
            if not output.is_data:
                print(*[f"{held[-1].trial}:", *held[-1].changes, held[-1]], sep="\n", flush=True)
    if output.is_data:
        print_data([_document(each) for each in held], output)
    return ExitCode.ROLLED_BACK if any(each.differences for each in held) else ExitCode.DELIVERED


def _replay_one(path: Path) -> ReplayedTest:
    """Hold one trial again.

    Raises:
        SpecError: when the file is not the transcript of a trial.
    """
    again, held = Replay(str(path)), ReplayedTest()
    said: dict[str, GateOutcome] = {}
    time: float | None = None
    for line in read(StringIO(text_in(path, "the transcript of a trial")), file=str(path)):
        held.differences += again.take(line)
        if isinstance(line, TermsLine):
            held.trial = line.trial
        elif isinstance(line, BatchLine):
            time = line.batch.time
        elif isinstance(line, VerdictsLine):
            held.changes += _changes(line, said, time)
    # Raises for a file without terms: nothing was compared then, and nothing may look the same.
    assert again.trial
    held.batches, held.verdicts = again.batches, again.verdicts
    return held


def _changes(line: VerdictsLine, said: dict[str, GateOutcome], time: float | None) -> Iterator[VerdictChange]:
    for verdict in line.verdicts:
        if said.get(verdict.gate) is not verdict.outcome:
            yield VerdictChange(time, line.step, verdict.gate, str(verdict.outcome), verdict.reason)
        said[verdict.gate] = verdict.outcome


@contextmanager
def _transcripts(
    recorded: str, stage: str | None, state: StateFolder, tracking_uri: str | None
) -> Iterator[list[Path]]:
    """The file itself; or a delivery's, from this machine, else from MLflow."""
    if Path(recorded).is_file():
        yield [Path(recorded)]
        return
    name = f"{stage.replace('/', '.')}.jsonl" if stage else None
    local = sorted((state.delivery(recorded) / FOLDER).glob("*.jsonl"))
    with TemporaryDirectory() as folder:
        found = local or open_deliveries(state.root, tracking_uri).fetch(recorded, FOLDER, Path(folder))
        if not found:
            hint = "give a file, or the whole id of a delivery that reached its first trial"
            raise UsageError(f"{recorded} has no recorded trial", hint=hint)
        chosen = [path for path in found if name in (None, path.name)]
        if not chosen:
            known = ", ".join(path.stem for path in found)
            raise UsageError(f"{recorded} has no trial {stage}", hint=f"known: {known}")
        yield chosen


def _document(held: ReplayedTest) -> dict[str, object]:
    return {
        "trial": held.trial,
        "same": not held.differences,
        "batches": held.batches,
        "verdicts": held.verdicts,
        "changes": [vars(change) for change in held.changes],
        "differences": [difference.model_dump() for difference in held.differences],
    }
