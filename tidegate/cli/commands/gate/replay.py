"""`tidegate gate replay`: recorded trials are judged again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from gates.model import GateOutcome
from gates.transcript import BatchLine, Replay, ReplayDifference, TermsLine, VerdictsLine, read
from pipelines.events.artifacts import FOLDER
from pipelines.state import StateFolder
from tidegate.app.wiring.stores import open_deliveries
from tidegate.cli.output import OutputForm, print_data, say
from tidegate.core.errors import ExitCode, UsageError
from tidegate.core.spec import text_in


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
                say(f"{held[-1].trial}:", *map(str, held[-1].changes), str(held[-1]))
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
