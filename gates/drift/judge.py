"""Tells whether users ask both arms alike, and whether the canary answers in the same kind of way.

Proven drift of answers is the canary's doing: `fail`. When the arms are asked different things, no
comparison between them is fair, the other gates' neither: `inconclusive`, at once. When users ask both
other things than before, that is the world: a warning, unless the settings hold the gate for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gates.drift.evidence import DriftEvidence, watched
from gates.drift.looks import Comparison, Look, Progress, Side
from gates.drift.spec import DriftGate, Reaction
from gates.drift.wording import sentence_of, too_few
from gates.model import NoData, Outcome, Verdict
from tidegate.core.model import Value

GATE = "drift"


class Finding(Value):
    """What one comparison says."""

    comparison: Comparison
    outcome: Outcome
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
    if not asked:
        reason = "both arms answer the same prompts, and no outputs are named to compare"
        return _undecided(reason, {}, deadline_passed=deadline_passed)
    findings = []
    for comparison in asked:
        progress = evidence.progress.get(comparison.name)
        if deadline_passed and progress:
            # The last look takes what is there, however little it grew.
            progress = progress.looked(comparison, settings.min_requests)
        findings.append(_judge_one(settings, comparison, progress, alpha / len(asked)))
    verdict = _together(settings, findings, deadline_passed=deadline_passed)
    beside = {name: value for name, value in watched(settings, evidence).items() if name not in verdict.numbers}
    return verdict.model_copy(update={"beside": beside})


def _judge_one(settings: DriftGate, comparison: Comparison, progress: Progress | None, level: float) -> Finding:
    look = progress.look if progress else None
    if progress is None or look is None:
        sentence = too_few(comparison, progress, settings.min_requests)
        return Finding(comparison=comparison, outcome=Outcome.RUNNING, sentence=sentence)
    used = look.at_most / comparison.threshold
    if progress.p_value <= level:
        outcome = Outcome.INCONCLUSIVE if comparison.is_input else Outcome.FAIL
    else:
        outcome = Outcome.PASS if used <= 1 else Outcome.RUNNING
    return Finding(
        comparison=comparison,
        outcome=outcome,
        sentence=sentence_of(comparison, look, outcome, p_value=progress.p_value),
        numbers=_numbers(comparison, look, progress.p_value),
        used=used,
    )


def _together(settings: DriftGate, findings: Sequence[Finding], *, deadline_passed: bool) -> Verdict:
    """One verdict: the finding that decides, then what is said of the users."""
    numbers = {name: value for finding in findings for name, value in finding.numbers.items()}
    arms = [finding for finding in findings if finding.comparison.side is Side.ARMS]
    moved = [found for found in findings if found not in arms and found.outcome is Outcome.INCONCLUSIVE]
    first = _deciding(arms)
    outcome, reason = first.outcome, first.sentence
    if outcome is Outcome.PASS:
        reason = f"the arms are alike in all {len(arms)} features; the least sure: {reason}"
        if moved and settings.since_reference is Reaction.HOLD:
            outcome = Outcome.INCONCLUSIVE
    reason = "; ".join([reason, *(finding.sentence for finding in moved)])
    if outcome is Outcome.RUNNING:
        return _undecided(reason, numbers, deadline_passed=deadline_passed)
    return Verdict(gate=GATE, outcome=outcome, reason=reason, numbers=numbers)


def _deciding(arms: Sequence[Finding]) -> Finding:
    """Different questions first: answers to them may well differ, and that is not the canary's doing."""
    unfair = [finding for finding in arms if finding.outcome is Outcome.INCONCLUSIVE]
    worst = max(finding.outcome for finding in arms)
    return max(unfair or [finding for finding in arms if finding.outcome is worst], key=lambda finding: finding.used)


def _undecided(reason: str, numbers: Mapping[str, float], *, deadline_passed: bool) -> Verdict:
    outcome = Outcome.INCONCLUSIVE if deadline_passed else Outcome.RUNNING
    return Verdict(gate=GATE, outcome=outcome, reason=reason, numbers=numbers)


def _numbers(comparison: Comparison, look: Look, p_value: float) -> dict[str, float]:
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
