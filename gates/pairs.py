"""Tells whether both versions say much the same to the same prompts, about as soon.

The comparison of shadow traffic. A prompt whose answers did not both arrive counts as no likeness at
all: a canary that answers only the easy half must not look alike.
"""

from __future__ import annotations

from statistics import fmean, median

from gates.chance import majority, mean_above
from gates.decide import Finding, decide, undecided
from gates.model import Pair, Pairs, Verdict
from gates.scoring import similarity
from gates.spec import AgreementGate

GATE = "agreement"


def judge_pairs(settings: AgreementGate, evidence: Pairs, *, deadline_passed: bool) -> Verdict:
    """Compare answers pair by pair: their words, and with a margin for it their TTFT."""
    numbers = _numbers(evidence)
    if evidence.sent < settings.min_pairs:
        reason = f"{evidence.sent} pairs were sent; at least {settings.min_pairs} are needed"
        return undecided(GATE, reason, numbers, deadline_passed=deadline_passed)
    findings = [_likeness(settings, evidence, numbers)]
    if settings.max_ttft_increase is not None and evidence.answered:
        findings.append(_lateness(settings.max_ttft_increase, evidence.answered, numbers))
    verdicts = [decide(GATE, finding, deadline_passed=deadline_passed) for finding in findings]
    return max(verdicts, key=lambda verdict: verdict.outcome)


def _likenesses(evidence: Pairs) -> list[float]:
    arrived = [similarity(pair.stable.text, pair.canary.text) for pair in evidence.answered]
    # What did not arrive is unlike: left out, a canary that answers only what is easy would look well.
    return arrived + [0.0] * (evidence.sent - len(arrived))


def _likeness(settings: AgreementGate, evidence: Pairs, numbers: dict[str, float]) -> Finding:
    differences = [1 - likeness for likeness in _likenesses(evidence)]
    sentence = (
        f"answers to {evidence.sent} prompts are {1 - fmean(differences):.2f} alike "
        f"(at least {settings.min_similarity:g}), {len(evidence.answered)} of the pairs arrived"
    )
    return Finding(
        sentence=sentence,
        numbers=numbers,
        beyond_margin=fmean(differences) > 1 - settings.min_similarity,
        p_value=mean_above(differences, 1 - settings.min_similarity),
    )


def _lateness(max_increase: float, pairs: tuple[Pair, ...], numbers: dict[str, float]) -> Finding:
    # Within a pair: prompts differ in length, and both arms of a pair had the same.
    ratios = [_ttft_ratio(pair) for pair in pairs]
    later = sum(ratio > 1 + max_increase for ratio in ratios)
    sentence = (
        f"canary TTFT is {(median(ratios) - 1) * 100:+.0f} % against stable in the median of {len(ratios)} pairs "
        f"(allowed {max_increase * 100:+g} %)"
    )
    return Finding(
        sentence=sentence,
        numbers=numbers,
        beyond_margin=median(ratios) > 1 + max_increase,
        p_value=majority(later, len(ratios)),
    )


def _ttft_ratio(pair: Pair) -> float:
    return pair.canary.ttft_seconds / pair.stable.ttft_seconds


def _numbers(evidence: Pairs) -> dict[str, float]:
    numbers = {"pairs_sent": float(evidence.sent), "pairs_arrived": float(len(evidence.answered))}
    if not evidence.answered:
        return numbers
    pairs = evidence.answered
    lengths = [pair.canary.output_tokens / max(1, pair.stable.output_tokens) for pair in pairs]
    return numbers | {
        "mean_similarity_score": fmean(_likenesses(evidence)),
        "same_finish_reason_share": fmean(pair.stable.finish_reason == pair.canary.finish_reason for pair in pairs),
        "median_length_ratio": median(lengths),
        "median_ttft_ratio": median(_ttft_ratio(pair) for pair in pairs),
        "median_ttft_canary_seconds": median(pair.canary.ttft_seconds for pair in pairs),
        "median_ttft_stable_seconds": median(pair.stable.ttft_seconds for pair in pairs),
    }
