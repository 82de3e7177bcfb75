"""The drift gate itself: verdicts and their sentences, the monitor within a sequential test, the requests it needs.

Proven drift of answers is the canary's doing: `fail`. When the arms are asked different things, no
comparison between them is fair, the other gates' neither: `inconclusive`, at once. When users ask both
other things than before, that is the world: a warning, unless the settings hold the gate for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

import scipy  # It loads `scipy.stats`, which takes a second, only when that is used.

from gates.analyses.base import Conditions, MonitoredGate, StageUse
from gates.analyses.drift.comparison import (
    GROWTH,
    PASS_LEVEL,
    ComparisonProgress,
    DriftComparison,
    DriftEvidence,
    InterimAnalysis,
    Side,
    spending,
    watched,
)
from gates.analyses.drift.spec import NUMERIC, Allowed, DriftGate, DriftReference, Feature, Reaction
from gates.evidence.batch import Batch, Source
from gates.model import GateOutcome, NoData, Verdict
from gates.stats.divergence import CHANCE_SCALE, Divergence, Statistic
from gates.traffic import BEYOND, Assumptions, Exposure, GateForecast, forecast_of, smallest_caught
from tidegate.core.errors import UsageError
from tidegate.core.model import Value

_WORDS = {
    Feature.PROMPT_LENGTH: "prompt length",
    Feature.LANGUAGE: "prompt language",
    Feature.TOPIC: "prompt topic",
    Feature.LENGTH: "answer length",
    Feature.ENTROPY: "token entropy",
    Feature.FINISH_REASON: "finish reason",
    Feature.REFUSAL: "refusals",
}
_STATISTICS = {Statistic.CHI2: "chi-squared distance"}


def sentence_of(comparison: DriftComparison, look: InterimAnalysis, outcome: GateOutcome, *, p_value: float) -> str:
    """What one look says, as far as `outcome` lets it."""
    found, allowed = look.divergence, comparison.threshold
    statistic = _STATISTICS.get(found.statistic, found.statistic.upper())
    what = f"{_WORDS[comparison.feature]} {statistic} {found.value:.3g}"
    if comparison.side is Side.ARMS:
        after = f"after {look.requests:,} canary and {look.against:,} stable requests"
    else:
        after = f"after {look.requests:,} requests against {look.against:,} of the reference window"
    if outcome is GateOutcome.PASS:
        return f"{what}, at most {look.at_most:.3g} where {allowed:g} is allowed, {after}"
    if outcome is GateOutcome.RUNNING:
        return f"{what} may be as much as {look.at_most:.3g} where {allowed:g} is allowed, {after}"
    proof = f"{what} where {allowed:g} is allowed, {after} (p = {p_value:.1g})"
    if comparison.side is Side.USERS:
        return f"users ask other things than in the reference window: {proof}"
    if comparison.is_input:
        return f"the arms are asked different things, so no comparison of them is fair: {proof}"
    return f"the canary answers differently: {proof}"


def too_few(comparison: DriftComparison, progress: ComparisonProgress | None, needed: int) -> str:
    """Why there was no look yet."""
    what = _WORDS[comparison.feature]
    if progress is None:
        return f"{what} is known of fewer than {needed} requests of the reference"
    if comparison.side is Side.ARMS:
        seen = f"{progress.requests} canary and {progress.against} stable requests"
    else:
        seen = f"{progress.requests} requests"
    return f"{what} is known of {seen}; at least {needed} are needed"


GATE = "drift"


class DriftFinding(Value):
    """What one comparison says."""

    comparison: DriftComparison
    outcome: GateOutcome
    """`inconclusive` is proven drift that is not the canary's doing."""
    sentence: str
    numbers: Mapping[str, float] = {}
    used: float = math.inf
    """The upper bound of the divergence, in units of what is allowed."""


def judge_drift(settings: DriftGate, evidence: DriftEvidence, *, alpha: float, deadline_passed: bool) -> Verdict:
    """Judge what was seen until now.

    `alpha` is this gate's share of the delivery's error budget: the chance of ending a delivery over
    divergences that are all within what is allowed, however many features and however often it is asked.
    """
    if isinstance(evidence.reference, NoData):
        reason = f"there are no bins to count in: {evidence.reference.reason}"
        return _undecided(reason, {}, deadline_passed=deadline_passed)
    asked = evidence.comparisons(settings)
    findings = []
    for comparison in asked:
        progress = evidence.progress.get(comparison.name)
        if deadline_passed and progress:
            # The last look takes what is there, however little it grew.
            progress = progress.looked(comparison, settings.min_requests)
        findings.append(_judge_one(settings, comparison, progress, alpha / len(asked)))
    verdict = _together(settings, findings, deadline_passed=deadline_passed)
    auxiliary = {name: value for name, value in watched(settings, evidence).items() if name not in verdict.numbers}
    return verdict.model_copy(update={"auxiliary": auxiliary})


def _judge_one(
    settings: DriftGate, comparison: DriftComparison, progress: ComparisonProgress | None, level: float
) -> DriftFinding:
    look = progress.look if progress else None
    if progress is None or look is None:
        sentence = too_few(comparison, progress, settings.min_requests)
        return DriftFinding(comparison=comparison, outcome=GateOutcome.RUNNING, sentence=sentence)
    used = look.at_most / comparison.threshold
    if progress.p_value <= level:
        outcome = GateOutcome.INCONCLUSIVE if comparison.is_input else GateOutcome.FAIL
    else:
        outcome = GateOutcome.PASS if used <= 1 else GateOutcome.RUNNING
    return DriftFinding(
        comparison=comparison,
        outcome=outcome,
        sentence=sentence_of(comparison, look, outcome, p_value=progress.p_value),
        numbers=_numbers(comparison, look, progress.p_value),
        used=used,
    )


def _together(settings: DriftGate, findings: Sequence[DriftFinding], *, deadline_passed: bool) -> Verdict:
    """One verdict: the finding that decides, then what is said of the users."""
    numbers = {name: value for finding in findings for name, value in finding.numbers.items()}
    arms = [finding for finding in findings if finding.comparison.side is Side.ARMS]
    moved = [found for found in findings if found not in arms and found.outcome is GateOutcome.INCONCLUSIVE]
    first = _deciding(arms)
    outcome, reason = first.outcome, first.sentence
    if outcome is GateOutcome.PASS:
        reason = f"the arms are alike in all {len(arms)} features; the least sure: {reason}"
        if moved and settings.since_reference is Reaction.HOLD:
            outcome = GateOutcome.INCONCLUSIVE
    reason = "; ".join([reason, *(finding.sentence for finding in moved)])
    if outcome is GateOutcome.RUNNING:
        return _undecided(reason, numbers, deadline_passed=deadline_passed)
    return Verdict(gate=GATE, outcome=outcome, reason=reason, numbers=numbers)


def _deciding(arms: Sequence[DriftFinding]) -> DriftFinding:
    """Different questions first: answers to them may well differ, and that is not the canary's doing."""
    unfair = [finding for finding in arms if finding.outcome is GateOutcome.INCONCLUSIVE]
    worst = max(finding.outcome for finding in arms)
    return max(unfair or [finding for finding in arms if finding.outcome is worst], key=lambda finding: finding.used)


def _undecided(reason: str, numbers: Mapping[str, float], *, deadline_passed: bool) -> Verdict:
    outcome = GateOutcome.INCONCLUSIVE if deadline_passed else GateOutcome.RUNNING
    return Verdict(gate=GATE, outcome=outcome, reason=reason, numbers=numbers)


def _numbers(comparison: DriftComparison, look: InterimAnalysis, p_value: float) -> dict[str, float]:
    name, found = comparison.name, look.divergence
    return {
        f"{name}_{found.statistic}": found.value,
        f"{name}_{found.statistic}_by_chance": found.by_chance,
        f"{name}_{found.statistic}_at_most": look.at_most,
        f"{name}_{found.statistic}_allowed": comparison.threshold,
        f"{name}_p_value": p_value,
        f"{name}_requests": float(look.requests),
        f"{name}_reference_requests": float(look.against),
    }


class DriftMonitor:
    """Adds up what batches count, and judges it when asked."""

    def __init__(self, settings: DriftGate, reference: DriftReference | NoData, *, rollback: float) -> None:
        """`reference` was frozen with the terms; `rollback` is the gate's share of the chance of a false alarm."""
        self._settings, self._rollback = settings, rollback
        self._evidence = DriftEvidence(reference)

    def refuse(self, batch: Batch) -> None:
        """Counts must lie in the frozen bins.

        Raises:
            UsageError: when a feature has another number of bins than the reference.
        """
        if batch.drift is None or isinstance(self._evidence.reference, NoData):
            return
        for feature, bins in self._evidence.reference.bins.items():
            for arm in (batch.drift.stable, batch.drift.canary):
                found = len(arm.get(feature, bins.reference))
                if found != len(bins.reference):
                    raise UsageError(
                        f"a batch counts {feature} in {found} bins; the reference has {len(bins.reference)}",
                        hint="count with the bins of the reference",
                    )

    def take(self, batch: Batch, seconds: float) -> None:
        """A batch without counts in bins says nothing of drift."""
        _ = seconds
        if batch.drift is not None:
            self._evidence = self._evidence.plus(self._settings, batch.drift)

    def restart(self) -> None:
        """What was seen at another weight is about the same answers: it stays."""

    def verdict(self, *, deadline_passed: bool) -> Verdict:
        """Of all batches so far."""
        return judge_drift(self._settings, self._evidence, alpha=self._rollback, deadline_passed=deadline_passed)


BINS_OF_NAMES = 3
"""A feature whose values are names has few common ones."""
MOST_REQUESTS = 10_000_000
"""Of the canary; who needs more needs another threshold."""


@lru_cache(maxsize=1024)
def requests_to_pass(settings: DriftGate, *, stable_per_canary: float) -> int | None:
    """Canary requests after which half of all canaries without any drift have passed; None when never.

    `stable_per_canary` is how many requests the stable arm has for each of the canary's; 19 at a weight of 5 %.
    """
    # All features must pass: half the time each is luckier than this.
    luck = 0.5 ** (1 / len(_asked(settings)))

    def passes(part: Allowed, feature: Feature, number: int, size: float) -> bool:
        seen = _seen(settings, part, feature, size, true=0, luck=luck)
        return seen.upper(PASS_LEVEL / spending(number)) <= part.threshold(feature)

    return _slowest(settings, stable_per_canary, passes)


@lru_cache(maxsize=1024)
def requests_to_fail(settings: DriftGate, *, times: float, stable_per_canary: float, alpha: float) -> int | None:
    """Canary requests after which a divergence of `times` what is allowed fails, half the time; None when never.

    `alpha` is the gate's share of the error budget, as in `judge_drift`. The answer is for the feature
    that needs most.
    """
    # What users ask is compared once more, with the reference window.
    comparisons = len(_asked(settings)) + (len(settings.inputs.features) if settings.inputs else 0)

    def fails(part: Allowed, feature: Feature, number: int, size: float) -> bool:
        threshold = part.threshold(feature)
        seen = _seen(settings, part, feature, size, true=times * threshold, luck=0.5)
        return seen.chance_above(threshold) * spending(number) <= alpha / comparisons

    return _slowest(settings, stable_per_canary, fails)


def _slowest(
    settings: DriftGate, stable_per_canary: float, decided: Callable[[Allowed, Feature, int, float], bool]
) -> int | None:
    """Requests until the feature that needs most is decided."""
    most = 0
    for part, feature in _asked(settings):
        for number, requests, size in _looks(settings, stable_per_canary):
            if decided(part, feature, number, size):
                most = max(most, requests)
                break
        else:
            return None
    return most


def _asked(settings: DriftGate) -> list[tuple[Allowed, Feature]]:
    parts = [part for part in (settings.inputs, settings.outputs) if part]
    return [(part, feature) for part in parts for feature in part.features]


def _looks(settings: DriftGate, stable_per_canary: float) -> Iterator[tuple[int, int, float]]:
    """Each look's number, the canary's requests at it, and n*m/(n+m) of both arms."""
    # The first look waits for the arm that has fewer.
    requests, number = settings.min_requests / min(1.0, stable_per_canary), 1
    while requests <= MOST_REQUESTS:
        yield number, math.ceil(requests), requests * stable_per_canary / (1 + stable_per_canary)
        requests, number = requests * GROWTH, number + 1


def _seen(settings: DriftGate, part: Allowed, feature: Feature, size: float, *, true: float, luck: float) -> Divergence:
    """What a true divergence looks like; a share `luck` of samples of this size shows less."""
    bins = settings.bins if feature in NUMERIC else BINS_OF_NAMES
    if part.statistic is Statistic.KS:
        chance = float(scipy.stats.kstwobign.ppf(luck)) / math.sqrt(size) if true == 0 else 0.0
        return Divergence(part.statistic, true + chance, bins, size, 0.5 / math.sqrt(size))
    scale = CHANCE_SCALE[part.statistic]
    value = float(scipy.stats.ncx2.ppf(luck, bins - 1, true * scale * size)) / scale / size
    return Divergence(part.statistic, value, bins, size, 2 * math.sqrt(max(true, value) / scale / size))


LARGEST = 50.0
"""Times what is allowed; who drifts further is another model."""


class DriftKind(MonitoredGate[DriftGate]):
    """How differently users ask, and the canary answers."""

    name = GATE
    spec = settings = DriftGate
    stages = (StageUse("canary"),)
    several = False

    def monitor(self, settings: DriftGate, conditions: Conditions) -> DriftMonitor:
        """As `MonitoredGate`."""
        return DriftMonitor(settings, conditions.reference, rollback=conditions.rollback)

    def forecast(
        self, settings: DriftGate, source: Source, exposure: Exposure, assumed: Assumptions, conditions: Conditions
    ) -> GateForecast:
        """As `MonitoredGate`; traffic has no drift that could be assumed, and regressions are times what is allowed."""
        arrivals, within = exposure.arrivals(source), exposure.within_seconds

        def fails(times: float) -> float:
            ratio = arrivals.stable / arrivals.canary
            found = requests_to_fail(settings, times=times, stable_per_canary=ratio, alpha=conditions.rollback)
            return math.inf if found is None else found / arrivals.canary

        timed = exposure.timed(source)
        smallest = smallest_caught(lambda times: fails(times) <= within, 1.0, LARGEST) if timed else None
        return forecast_of(
            GATE,
            source,
            exposure,
            arrivals,
            unit="requests",
            scale="times",
            passes=self.passes(settings, source, exposure, assumed, conditions),
            regression=BEYOND,
            fails=fails(BEYOND),
            smallest=smallest,
        )

    def passes(
        self, settings: DriftGate, source: Source, exposure: Exposure, assumed: Assumptions, conditions: Conditions
    ) -> float:
        """As `MonitoredGate`."""
        _ = assumed, conditions
        arrivals = exposure.arrivals(source)
        found = requests_to_pass(settings, stable_per_canary=arrivals.stable / arrivals.canary)
        return math.inf if found is None else found / arrivals.canary
