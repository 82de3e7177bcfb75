"""The trials of a delivery: each is judged in memory and written down, line by line, as it is judged.

A transcript that lies there already is of the process before this one: its trial is held again and goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from gates.drift.bins import Reference
from gates.evidence import Batch
from gates.model import NoData, Verdict
from gates.terms import Terms
from gates.transcript import BatchLine, Line, Replay, RestartLine, TermsLine, VerdictsLine, read, written
from gates.trial import Trial
from pipelines.errors import NotAsPlanned

FOLDER = "evidence"
"""Of a delivery's folder and of its artifacts: a transcript for each trial."""


class RecordedTrial:
    """A trial whose terms, batches and verdicts are in a file before they have any effect."""

    def __init__(self, terms: Terms, path: Path) -> None:
        """The terms are written at once: before there is any evidence."""
        self._trial = Trial(terms)
        self._step, self._batches = "", 0
        self._digest, self._bytes = sha256(), 0
        self.terms = terms
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._write(TermsLine(trial=path.stem, terms=terms))

    @classmethod
    def continued(cls, path: Path) -> RecordedTrial:
        """The trial of a transcript, as it stood after the last whole line.

        Raises:
            SpecError: the file is no transcript.
        """
        text = path.read_text(encoding="utf-8", errors="replace")
        # A crash may have cut the last line short; what follows must not be written behind its half.
        whole = text[: text.rfind("\n") + 1]
        lines = list(read(whole.splitlines(keepends=True), file=str(path)))
        again = Replay(str(path))
        for line in lines:
            # What was said then is said; it was proven by whoever said it, and costs time to say again.
            if not isinstance(line, VerdictsLine):
                again.take(line)
        path.write_text(whole, encoding="utf-8")
        trial = cls.__new__(cls)
        trial._trial, trial.terms, trial.path = again.trial, again.trial.terms, path
        trial._digest, trial._bytes = sha256(whole.encode()), len(whole.encode())
        trial._batches = sum(isinstance(line, BatchLine) for line in lines)
        trial._step = next((line.step for line in reversed(lines) if not isinstance(line, TermsLine)), "")
        return trial

    def begin(self, step: str) -> None:
        """A step of the delivery begins: what spoke for the canary at another weight counts no longer."""
        again, self._step = bool(self._step), step
        if again:
            self.count_anew()

    def count_anew(self) -> None:
        """What was taken so far is a past to bet on; what verdicts tell and what speaks for the canary begins here."""
        self._write(RestartLine(step=self._step))
        self._trial.restart()

    @property
    def is_new(self) -> bool:
        """Whether it has taken nothing yet."""
        return self._batches == 0

    def take(self, batch: Batch) -> None:
        """As `Trial`."""
        self._batches += 1
        self._write(BatchLine(step=self._step, batch=batch))
        self._trial.take(batch)

    def verdicts(self, *, deadline_passed: bool) -> Sequence[Verdict]:
        """As `Trial`."""
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


def asked_of(terms: Terms) -> Mapping[str, object]:
    """The part of the terms that the spec decides alone; the rest was found when the trial was opened."""
    return terms.model_dump(exclude={"reference", "sources", "method"})


class Keeper(Protocol):
    """Takes files that shall be kept with the delivery, and holds nobody up: a `Journal`."""

    def attach(self, path: Path, *, folder: str = "") -> None:
        """Keep it below that folder."""
        ...


class Trials:
    """All trials of one delivery, by name: `canary@eu-west-1` is one trial through all its weights."""

    def __init__(self, folder: Path, keeper: Keeper) -> None:
        """`folder` is the delivery's own on this machine."""
        self._folder, self._keeper = folder / FOLDER, keeper
        self._open: dict[str, RecordedTrial] = {}

    def open(self, name: str, terms: Terms, step: str) -> RecordedTrial:
        """The trial of that name, for one more step; its terms are those of the first time.

        Raises:
            NotAsPlanned: a transcript is here that asks for something else than the spec.
        """
        trial = self._known(name)
        if trial is None:
            trial = self._open[name] = RecordedTrial(terms, self._path(name))
        elif asked_of(trial.terms) != asked_of(terms):
            raise NotAsPlanned(f"the evidence of {name} was judged by other terms than those of the spec")
        trial.begin(step)
        return trial

    def reference(self, name: str) -> Reference | NoData | None:
        """The bins that were frozen when that trial was opened; None when it was not."""
        trial = self._known(name)
        return trial.terms.reference if trial else None

    def written(self, step: str) -> Mapping[str, tuple[int, str]]:
        """How far the transcripts of a step's trials are written, for the verdicts that are told of them."""
        return {name: trial.written for name, trial in self._open.items() if trial.step == step}

    def keep(self, name: str) -> None:
        """Put the transcript so far beside the ledger's events."""
        self._keeper.attach(self._open[name].path, folder=FOLDER)

    def _known(self, name: str) -> RecordedTrial | None:
        if name not in self._open and self._path(name).exists():
            self._open[name] = RecordedTrial.continued(self._path(name))
        return self._open.get(name)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name.replace('/', '.')}.jsonl"
