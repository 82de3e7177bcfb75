"""Artifacts of a delivery: its spec, the files that it names, and the transcripts of its gates.

A transcript is written line by line as its test is judged; verdicts in the ledger name its length and digest.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from io import StringIO
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from gates.comparison import LEAST_STEP
from gates.evidence.batch import Batch
from gates.model import Verdict
from gates.sequential_test import AnalysisPlan, SequentialTest
from gates.transcript import BatchLine, Line, Replay, RestartLine, TermsLine, VerdictsLine, read, written
from pipelines.errors import NotAsPlanned
from pipelines.events.journal import Journal
from pipelines.events.payloads import VerdictPayload
from pipelines.events.state import done_steps
from pipelines.ports import Ledger
from pipelines.spec.delivery import Delivery
from pipelines.spec.policy import named_files
from registry.conventions import MOST_ARTIFACT_BYTES
from registry.deliveries import MlflowDeliveries
from registry.model import Event
from tidegate.core.errors import UsageError
from tidegate.core.model import Value

FOLDER = "evidence"
"""Of a delivery's folder and of its artifacts: a transcript for each trial."""


class RecordedTrial:
    """A trial whose terms, batches and verdicts are in a file before they have any effect."""

    def __init__(self, trial: SequentialTest, path: Path, lines: Sequence[Line] = (), text: str = "") -> None:
        """`lines` are what its transcript has so far, and `text` is all that is written of them."""
        self._trial = trial
        self._batches = sum(isinstance(line, BatchLine) for line in lines)
        self._step = next((line.step for line in reversed(lines) if not isinstance(line, TermsLine)), "")
        self._digest, self._bytes = sha256(text.encode()), len(text.encode())
        self.terms = trial.plan
        self.path = path

    @classmethod
    def begun(cls, terms: AnalysisPlan, path: Path) -> RecordedTrial:
        """A new trial; its terms are written at once: before there is any evidence."""
        path.parent.mkdir(parents=True, exist_ok=True)
        trial = cls(SequentialTest(terms), path)
        trial._write(TermsLine(trial=path.stem, terms=terms))
        return trial

    @classmethod
    def continued(cls, path: Path) -> RecordedTrial:
        """The trial of a transcript, as it stood after the last whole line.

        Raises:
            SpecError: the file is no transcript.
        """
        text = path.read_text(encoding="utf-8", errors="replace")
        # A crash may have cut the last line short; what follows must not be written behind its half.
        whole = text[: text.rfind("\n") + 1]
        lines = list(read(StringIO(whole), file=str(path)))
        again = Replay(str(path))
        for line in lines:
            # What was said then is said; it was proven by the one who said it, and costs time to say again.
            if not isinstance(line, VerdictsLine):
                again.take(line)
        path.write_text(whole, encoding="utf-8")
        return cls(again.trial, path, lines, whole)

    def begin(self, step: str) -> None:
        """A step of the delivery begins: what spoke for the canary at another weight counts no longer."""
        again, self._step = bool(self._step), step
        if again:
            self.count_again()

    def count_again(self) -> None:
        """What was taken so far is a past to bet on; what verdicts tell and what speaks for the canary begins here."""
        self._write(RestartLine(step=self._step))
        self._trial.restart()

    @property
    def is_new(self) -> bool:
        """Whether it has taken nothing yet."""
        return self._batches == 0

    def take(self, batch: Batch) -> None:
        """As `SequentialTest`, also of a batch that a clock which was set back dates before the last one."""
        last = self._trial.latest(batch.source)
        if last is not None and batch.time <= last:
            batch = batch.model_copy(update={"time": last + LEAST_STEP})
        self._batches += 1
        self._write(BatchLine(step=self._step, batch=batch))
        self._trial.take(batch)

    def verdicts(self, *, deadline_passed: bool) -> Sequence[Verdict]:
        """As `SequentialTest`."""
        verdicts = self._trial.verdicts(deadline_passed=deadline_passed)
        self._write(VerdictsLine(step=self._step, deadline_passed=deadline_passed, verdicts=verdicts))
        return verdicts

    @property
    def step(self) -> str:
        """The step that it was begun for last."""
        return self._step

    @property
    def written(self) -> tuple[int, str]:
        """How many bytes of the transcript are written, and their SHA-256."""
        return self._bytes, self._digest.hexdigest()

    def _write(self, line: Line) -> None:
        text = (written(line) + "\n").encode()
        self._digest.update(text)
        self._bytes += len(text)
        with self.path.open("ab") as file:
            file.write(text)


def asked_of(terms: AnalysisPlan) -> Mapping[str, object]:
    """The part of the terms that the spec decides alone; the rest was found when the trial was opened."""
    return terms.model_dump(exclude={"sources"})


class Trials:
    """All trials of one delivery, by name: `canary@eu-west-1` is one trial through all its weights."""

    def __init__(self, folder: Path, journal: Journal) -> None:
        """`folder` is the delivery's own on this machine; `journal` takes files that shall be kept, and waits not."""
        self._folder, self._journal = folder / FOLDER, journal
        self._open: dict[str, RecordedTrial] = {}

    def open(self, name: str, terms: AnalysisPlan, step: str) -> RecordedTrial:
        """The trial of that name, for one more step; its terms are those of the first time.

        Raises:
            NotAsPlanned: a transcript is here that asks for something else than the spec.
        """
        trial = self._known(name)
        if trial is None:
            trial = self._open[name] = RecordedTrial.begun(terms, self._path(name))
        elif asked_of(trial.terms) != asked_of(terms):
            raise NotAsPlanned(
                f"the evidence of {name} was judged by other terms than those of the spec",
                hint="resume with the spec that it began with, or deliver again",
            )
        trial.begin(step)
        return trial

    def written(self, step: str) -> Mapping[str, tuple[int, str]]:
        """How far the transcripts of a step's trials are written, by their files' names without the ending.

        Verdicts tell it, so that a transcript can be compared with what they were told of.
        """
        return {trial.path.stem: trial.written for trial in self._open.values() if trial.step == step}

    def keep(self, name: str) -> None:
        """Put the transcript so far next to the ledger's events."""
        self._journal.attach(self._open[name].path, folder=FOLDER)

    def _known(self, name: str) -> RecordedTrial | None:
        if name not in self._open and self._path(name).exists():
            self._open[name] = RecordedTrial.continued(self._path(name))
        return self._open.get(name)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name.replace('/', '.')}.jsonl"


class Vouched(Value):
    """What verdicts in the ledger say of one transcript, but those of a step that was begun again since.

    A process that was killed may not have kept what it had written; elsewhere the transcript goes another way then, and
    where it was kept, the verdicts that follow vouch for it.
    """

    states: tuple[tuple[int, str], ...] = ()
    """How many bytes it had at each, and their SHA-256."""
    least: int = 0
    """Bytes that must be there: those that the verdicts of steps that are done were told of."""


def vouched(events: Sequence[Event]) -> Mapping[str, Vouched]:
    """By the name of the transcript, as `canary@eu-west-1`, or `bake@1.eu-west-1`."""
    by_step: dict[str, list[tuple[str, tuple[int, str]]]] = {}
    for event in events:
        if event.kind == "started":
            by_step.pop(event.step, None)
        elif event.kind == "verdict":
            by_step.setdefault(event.step, []).extend(VerdictPayload.of(event).transcripts.items())
    done, found = done_steps(events), dict[str, Vouched]()
    for step, told in by_step.items():
        for trial, state in told:
            known = found.get(trial, Vouched())
            least = max(known.least, state[0] if step in done else 0)
            found[trial] = Vouched(states=(*known.states, state), least=least)
    return found


def refuse_shorter(trial: str, found: int, least: int) -> None:
    """Say no to a transcript that lacks what verdicts were told of.

    Raises:
        NotAsPlanned: it does.
    """
    if found < least:
        raise _not_as_judged(trial, "cut off")


def proven(trial: str, content: bytes, told: Vouched) -> int:
    """How many bytes of a transcript the ledger vouches for; what stands behind them, nobody has judged by.

    Raises:
        NotAsPlanned: the transcript is another than the one that verdicts were told of.
    """
    digest, size = sha256(), 0
    for end, expected in sorted(told.states):
        if end > len(content):
            break
        digest.update(content[size:end])
        size = end
        if digest.hexdigest() != expected:
            raise _not_as_judged(trial, "changed")
    return size


def _not_as_judged(trial: str, what: str) -> NotAsPlanned:
    hint = "find out who changed it: `tidegate audit verify`; then deliver the version again"
    return NotAsPlanned(f"the evidence of {trial} was {what} after its verdicts", hint=hint)


SPEC = "spec"
"""Of a delivery's folder and of its artifacts: the spec and the files it names, as they lay side by side."""


def refuse_unkeepable(spec: Delivery) -> None:
    """Say no to a spec that names a file by a path that is right on this machine only.

    Raises:
        UsageError: it does.
    """
    absolute = next((str(path) for _, path in named_files(spec) if path.is_absolute()), None)
    if absolute is not None:
        raise UsageError(
            f"the spec names {absolute}, which other machines do not have",
            hint="name it by its path from the spec, so that it can be kept with the delivery",
        )


def keep_spec(ledger: Ledger, spec_path: Path, spec: Delivery) -> str:
    """Keep the spec and what it names; returns where the spec lies among them.

    Raises:
        UsageError: as `refuse_unkeepable`.
    """
    spec_file, paths = laid_out(spec_path, spec)
    for place, path in paths.items():
        if (size := path.stat().st_size) > MOST_ARTIFACT_BYTES:
            raise UsageError(f"{path} has {size:,} bytes; a delivery keeps files of at most {MOST_ARTIFACT_BYTES:,}")
        ledger.attach(path, folder=str(PurePosixPath(SPEC, place).parent))
    return spec_file


def laid_out(spec_path: Path, spec: Delivery) -> tuple[str, Mapping[str, Path]]:
    """Where the spec lies among the files that it names, and all of them by their places in one folder.

    Raises:
        UsageError: as `refuse_unkeepable`.
    """
    refuse_unkeepable(spec)
    paths = [Path(os.path.normpath(spec_path.absolute()))]
    paths += [Path(os.path.normpath(paths[0].parent / path)) for _, path in named_files(spec)]
    root = Path(os.path.commonpath([path.parent for path in paths]))
    return paths[0].relative_to(root).as_posix(), {path.relative_to(root).as_posix(): path for path in paths}


def digests_of(paths: Mapping[str, Path]) -> dict[str, str]:
    """The SHA-256 of files that are to be kept, by their places."""
    return {place: sha256(path.read_bytes()).hexdigest() for place, path in paths.items()}


def bring_spec(kept: MlflowDeliveries, delivery: str, spec_file: str, folder: Path, files: Collection[str]) -> Path:
    """The spec of a delivery, brought to `folder` with the other `files` with which it was opened.

    Raises:
        UsageError: it was not kept.
        NotAsPlanned: there are others, which are not brought.
    """
    shutil.rmtree(folder / SPEC, ignore_errors=True)
    named = {f"{SPEC}/{place}" for place in files}
    found = [path.relative_to(folder).as_posix() for path in kept.fetch(delivery, SPEC, folder, named)]
    if others := [place for place in found if place not in named]:
        raise NotAsPlanned(
            f"delivery {delivery}: its kept files are not those it was opened with: {others[0]} is not among them",
            hint="deliver the version again",
        )
    path = folder / SPEC / spec_file
    if not path.exists():
        raise UsageError(f"the spec of delivery {delivery} was not kept", hint="deliver the version again")
    return path


def transcripts(told: Iterable[str]) -> frozenset[str]:
    """The artifacts of the trials that the ledger vouches for; nothing of others is ever read."""
    return frozenset(f"{FOLDER}/{trial}.jsonl" for trial in told)


def bring_evidence(kept: MlflowDeliveries, delivery: str, folder: Path, told: Mapping[str, Vouched]) -> None:
    """Bring the transcripts of a delivery to its folder; one that goes further here stays as it is.

    Of what is brought, only what the ledger vouches for is kept: the rest, no verdict was told of.

    `folder` is the delivery's own on this machine, `told` what the ledger vouches for.

    Raises:
        NotAsPlanned: a transcript is another than the one that verdicts were told of, or was cut off.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder) as fresh:
        for path in kept.fetch(delivery, FOLDER, Path(fresh), transcripts(told)):
            trial, content = path.stem, path.read_bytes() if path.exists() else b""
            content = content[: proven(trial, content, told.get(trial, Vouched()))]
            here = folder / FOLDER / path.name
            # A process that died here may have written more than it had kept; another's may have gone another way.
            if not content or (here.exists() and here.read_bytes().startswith(content)):
                continue
            here.parent.mkdir(parents=True, exist_ok=True)
            here.write_bytes(content)
    for trial, each in told.items():
        here = folder / FOLDER / f"{trial}.jsonl"
        refuse_shorter(trial, here.stat().st_size if here.exists() else 0, each.least)
