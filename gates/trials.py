"""A canary's trial, judged from a Prometheus alone: the answer depends on the question and the moment, on nothing kept.

A trial begins at `since`, else at the canary's first sample after the last `GAP` without any. From there windows of
one length follow each other, and each is read once it has passed: whoever asks, and however often, has the same
windows judged in the same order. So two replicas agree, one that was started again has lost nothing, and nobody peeks.
What was read is remembered to be quick, and for nothing else.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Annotated, Any, Protocol

import numpy as np
from pydantic import AwareDatetime, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from gates.analyses.queries import PrometheusGate
from gates.evidence.batch import ArmName, Batch
from gates.model import ArmKey, GateOutcome, OutcomeName, Verdict, worst
from gates.ports import EvidenceSource
from gates.sequential_test import AnalysisPlan, SequentialTest
from tidegate.core.clock import Clock
from tidegate.core.errors import OutsideError, UsageError
from tidegate.core.model import Value
from tidegate.core.units import format_duration

GAP = timedelta(minutes=10)
"""So long without any sample, and what comes back is another trial: a hash that is delivered again next week."""
LOOKS_BACK = timedelta(hours=1)
"""For a canary that has no series now, before it is said that there is none."""
MOST_WITHOUT_SERIES = 2
"""Windows: engines that have just become ready are scraped within one."""
MOST_TRIALS = 1000
"""That are remembered; one that was asked longest ago is read again when it is asked."""

Name = Annotated[str, Field(max_length=253, pattern=r"^[^\x00-\x1f\x7f]*$")]
"""As Kubernetes bounds names; without characters that would break a line of a log."""
GivenName = Annotated[Name, Field(min_length=1)]


_LABELS = re.compile(r"([A-Za-z_][A-Za-z0-9_]*=[^,=]*,?)+")


def _as_text(given: Any) -> Any:
    """`{app: chat, role: primary}` as `app=chat,role=primary`."""
    text = ",".join(f"{name}={value}" for name, value in given.items()) if isinstance(given, Mapping) else given
    if isinstance(text, str) and "=" in text and not _LABELS.fullmatch(text):
        raise PydanticCustomError("labels", "expected a version, or labels such as app=chat,role=primary")
    return text


Arm = Annotated[GivenName, BeforeValidator(_as_text, json_schema_input_type=GivenName | dict[str, str])]
"""What tells an arm's series apart: the value of the label that `metrics.sources` names, such as a version or a pod
template hash; or labels, `app=chat,role=primary`."""


class Question(Value):
    """Which canary is judged."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    service: GivenName
    stable: Arm
    canary: Arm
    region: Name = ""
    """Where series have a label for it."""
    since: AwareDatetime | None = None
    """When the trial began; None for when the canary's series did."""

    def __str__(self) -> str:
        return f"{self.service} {self.stable} -> {self.canary}" + (f" in {self.region}" if self.region else "")

    @property
    def arms(self) -> tuple[ArmKey, ArmKey]:
        """Stable and canary."""
        return (
            ArmKey(region=self.region, role="stable", version=self.stable),
            ArmKey(region=self.region, role="canary", version=self.canary),
        )


class Answer(Value):
    """What is known now."""

    outcome: OutcomeName
    """The worst of all gates."""
    gate: str
    """The one that decides it; `evidence` where there is nothing to judge."""
    sentence: str
    evidence: Mapping[str, int | float | str] = {}
    """The numbers of that gate; the time and the number of the windows that were judged."""
    needs: str = ""
    """What a verdict waits for; empty once there is one."""
    gates: Mapping[str, OutcomeName] = {}


class TrialEvidence(EvidenceSource, Protocol):
    """Evidence that also says when an arm was seen."""

    def sampled(self, arm: ArmKey, since: datetime, until: datetime) -> Sequence[datetime]:
        """The times of the arm's samples in (since, until], rising.

        Raises:
            OutsideError: when the source is not there.
        """
        ...

    def selectors(self, arm: ArmKey) -> str:
        """What its series are looked for by, for people."""
        ...


@dataclass(frozen=True)
class Judged:
    """What a trial has come to."""

    verdicts: Sequence[Verdict]
    since: datetime
    windows: int
    until: datetime | None
    """The end of the last window; None before the first has passed."""
    behind: bool
    """Whether windows have passed that were not read yet."""

    @property
    def decides(self) -> Verdict:
        """The first of those that are as bad as all together; what is not read whole passes nothing."""
        outcome = worst(verdict.outcome for verdict in self.verdicts)
        found = next(verdict for verdict in self.verdicts if verdict.outcome is outcome)
        if not self.behind or outcome is GateOutcome.FAIL:
            return found
        return found.model_copy(update={"outcome": GateOutcome.RUNNING})

    @property
    def answer(self) -> Answer:
        """As other programs are told."""
        decides = self.decides
        times = {"since": _written(self.since)} | ({"until": _written(self.until)} if self.until else {})
        return Answer(
            outcome=decides.outcome,
            gate=decides.gate,
            sentence=decides.reason,
            evidence={**times, "windows": self.windows, **decides.numbers},
            needs=self._needs(decides),
            gates={verdict.gate: verdict.outcome for verdict in self.verdicts},
        )

    def _needs(self, decides: Verdict) -> str:
        if self.behind:
            return "windows that have passed are still read: ask again"
        if decides.outcome is GateOutcome.ERROR:
            return "series of both arms"
        if decides.outcome is GateOutcome.INCONCLUSIVE:
            return "a new trial: the time of this one is over"
        found, needed = (decides.numbers.get(f"evidence_fine{end}", 0.0) for end in ("", "_needed"))
        if decides.outcome is not GateOutcome.RUNNING or not needed:
            return "" if decides.outcome is not GateOutcome.RUNNING else "more evidence"
        words = f"evidence {needed:,.0f}:1 that it is within the margin"
        if self.until is None or not 1 < found < needed:
            return words
        # Its logarithm grows about evenly with time.
        left = (self.until - self.since) * (math.log(needed) / math.log(found) - 1)
        return f"{words}; at this rate in about {max(round(left / timedelta(minutes=1)), 1)} minutes"


def _written(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


Heard = Callable[[Question, Answer], None]


class Judge:
    """Answers questions; called from several threads at once. Those who ask about one canary wait for each other."""

    def __init__(
        self,
        plan: AnalysisPlan,
        look: timedelta,
        source: TrialEvidence,
        clock: Clock,
        *,
        service: str = "",
        within: timedelta = timedelta(hours=24),
        ask_seconds: float = 5.0,
        changed: Heard = lambda *_: None,
    ) -> None:
        """`plan` and the length `look` of a window are those of every trial, fixed before there is evidence.

        `service` is the only one that is asked about, where it is not empty. After `within` a trial without a verdict
        is inconclusive, and no more is read. One question reads for about `ask_seconds`: who asks waits ten, as Argo
        Rollouts and Flagger do. `changed` hears of an answer whose outcome is another than before.
        """
        self._plan, self._look, self._source, self._clock = plan, look, source, clock
        self._service, self._within, self._ask_seconds, self._changed = service, within, ask_seconds, changed
        # Gates on queries of a team's own may be all that there are, and their series all that there is.
        self._reads_series = any(not isinstance(each, PrometheusGate) for each in plan.settings.values())
        self._known: OrderedDict[Question, _Known] = OrderedDict()
        self._lock = Lock()

    @property
    def now(self) -> datetime:
        """The newest moment of which all is known."""
        return self._clock.now() - self._source.settles_within

    def ask(self, question: Question) -> Answer:
        """What holds now. What cannot be read, or has no series, is told as the outcome `error`.

        Raises:
            UsageError: nothing could ever be judged: the two arms are one, or the service is another.
        """
        known = self._remembered(question)
        with known.lock:
            try:
                answer = self._judged(question, known).answer
            except OutsideError as error:
                outcome = GateOutcome.ERROR
                answer = Answer(outcome=outcome, gate="evidence", sentence=error.message, needs=error.hint or "")
            changed, known.told = known.told is not answer.outcome, answer.outcome
        if changed:
            self._changed(question, answer)
        return answer

    def judged(self, question: Question) -> Judged:
        """The same for somebody who waits until all of it is read.

        Raises:
            UsageError: as `ask`.
            OutsideError: the evidence cannot be read, or there is no trial.
        """
        known = self._remembered(question)
        with known.lock:
            while (found := self._judged(question, known)).behind:
                pass
            return found

    def _remembered(self, question: Question) -> _Known:
        """What is known of it; refuses what could never be judged."""
        if question.stable == question.canary:
            raise UsageError(f"stable and canary: found {question.stable!r} twice; expected two versions")
        if self._service and question.service != self._service:
            raise UsageError(
                f"service: found {question.service!r}; expected {self._service!r}, the metadata.name of the gates",
                hint="leave metadata.name out of the file to judge several services by it",
            )

        with self._lock:
            known = self._known.setdefault(question, _Known())
            self._known.move_to_end(question)
            while len(self._known) > MOST_TRIALS:
                self._known.popitem(last=False)
        return known

    def _judged(self, question: Question, known: _Known) -> Judged:
        now = self.now
        stable, canary = question.arms
        begins = question.since or self._begins(canary, now, known)
        # Whole seconds, as an answer says it and a question may repeat it.
        begins = begins.replace(microsecond=0) if begins else None
        trial = known.trial
        if trial is None or trial.begins != begins:
            # Stable serves, so it has series; the canary may have begun just now.
            serves = not self._reads_series or self._source.sampled(stable, now - GAP, now)
            for arm, seen in ((stable, serves), (canary, begins)):
                if not seen:
                    hint = "check `metrics.sources` of the gates, and how the question names the arm"
                    raise OutsideError(f"no series of {arm}: {self._source.selectors(arm)}", hint=hint)
            assert begins is not None
            trial = known.trial = _Trial(SequentialTest(self._plan), begins, self._look, self._within)
        ends = self._clock.monotonic() + self._ask_seconds
        while (window := trial.due(now)) and self._clock.monotonic() < ends:
            trial.take(self._source.batch(stable, canary, *window))
        return trial.judged(behind=trial.due(now) is not None)

    def _begins(self, canary: ArmKey, now: datetime, known: _Known) -> datetime | None:
        """The first sample after the last gap, looked for block by block from now on back; None where there is none.

        Raises:
            OutsideError: there is no gap as far back as is looked.
        """
        begins, newest, end, most = None, None, now, self._within + LOOKS_BACK
        while now - end < most:
            for at in reversed(self._source.sampled(canary, end - GAP, end)):
                if begins and begins - at >= GAP:
                    known.begins, known.seen = begins, newest
                    return begins
                begins, newest = at, newest or at
            end -= GAP
            if begins is None:
                if now - end >= LOOKS_BACK:
                    return None
            elif known.begins and known.seen and begins - known.seen < GAP:
                begins, end = known.begins, known.begins - GAP
            if begins and begins - end >= GAP:
                known.begins, known.seen = begins, newest
                return begins
        raise OutsideError(
            f"{canary} has had series for more than {format_duration(most)}",
            hint="say with `since` when the trial began",
        )


MOST_WINDOWS = 60
"""Within which a change of the canary's share is looked for."""
DEVIATIONS = 5.0
"""Standard deviations by which the share before and after differ: by chance once in a million windows."""
ODDS = 1.4
"""Times by which the odds of reaching the canary have changed at least: users who stay where they are make the
count's spread larger than chance does, and no step of a rollout is smaller."""


class _Shares:
    """Requests of both arms, window by window, since the canary had another share of them."""

    def __init__(self) -> None:
        self._counts: list[tuple[int, int]] = []

    def changed(self, batch: Batch) -> bool:
        """Whether the share is another than before; what came before is forgotten then."""
        counted = {arm: sum(pod.requests for pod in batch.arms if pod.arm is arm) for arm in ArmName}
        self._counts = [*self._counts[-MOST_WINDOWS:], (counted[ArmName.STABLE], counted[ArmName.CANARY])]
        before = np.cumsum(np.asarray(self._counts, dtype=np.float64), axis=0)
        after = before[-1] - before
        # Half a request more everywhere, so that an arm without any has odds too.
        odds = np.log((after[:, 1] + 0.5) / (after[:, 0] + 0.5)) - np.log((before[:, 1] + 0.5) / (before[:, 0] + 0.5))
        spread = np.sqrt((1 / (before + 0.5) + 1 / (after + 0.5)).sum(axis=1))
        (found,) = np.nonzero((np.abs(odds) > DEVIATIONS * spread) & (np.abs(odds) > math.log(ODDS)))
        if len(found):
            clearest = found[np.argmax(np.abs(odds / spread)[found])]
            self._counts = self._counts[clearest + 1 :]
        return bool(len(found))


@dataclass
class _Known:
    """What is remembered of a question."""

    lock: Lock = field(default_factory=Lock)
    trial: _Trial | None = None
    begins: datetime | None = None
    seen: datetime | None = None
    """The newest sample of the canary."""
    told: GateOutcome | None = None


@dataclass
class _Trial:
    """One sequential test, and how far it has read."""

    test: SequentialTest
    begins: datetime
    look: timedelta
    within: timedelta
    windows: int = 0
    shares: _Shares = field(default_factory=_Shares)

    def due(self, now: datetime) -> tuple[datetime, datetime] | None:
        """The next window, when it has passed and is within the trial's time."""
        start, end = self._window
        return (start, end) if end <= now and not self._is_over else None

    def take(self, batch: Batch) -> None:
        self.windows += 1
        self.test.take(batch)
        if self.shares.changed(batch):
            self.test.restart()

    def judged(self, *, behind: bool) -> Judged:
        unseen = self.test.without_series(MOST_WITHOUT_SERIES)
        verdicts = [
            verdict.model_copy(update={"outcome": GateOutcome.ERROR})
            if verdict.outcome is GateOutcome.RUNNING and verdict.gate in unseen
            else verdict
            for verdict in self.test.verdicts(deadline_passed=self._is_over)
        ]
        until = self._window[0] if self.windows else None
        return Judged(verdicts, since=self.begins, windows=self.windows, until=until, behind=behind)

    @property
    def _window(self) -> tuple[datetime, datetime]:
        start = self.begins + self.windows * self.look
        return start, start + self.look

    @property
    def _is_over(self) -> bool:
        return self._window[1] > self.begins + self.within
