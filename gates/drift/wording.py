"""The drift gate's sentences."""

from __future__ import annotations

from gates.drift.features import Feature
from gates.drift.looks import Comparison, Look, Progress, Side
from gates.drift.spec import Statistic
from gates.model import Outcome

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


def sentence_of(comparison: Comparison, look: Look, outcome: Outcome, *, p_value: float) -> str:
    """What one look says, as far as `outcome` lets it."""
    found, allowed = look.divergence, comparison.threshold
    statistic = _STATISTICS.get(found.statistic, found.statistic.upper())
    what = f"{_WORDS[comparison.feature]} {statistic} {found.value:.3g}"
    if comparison.side is Side.ARMS:
        after = f"after {look.requests:,} canary and {look.against:,} stable requests"
    else:
        after = f"after {look.requests:,} requests against {look.against:,} of the reference window"
    if outcome is Outcome.PASS:
        return f"{what}, at most {look.at_most:.3g} where {allowed:g} is allowed, {after}"
    if outcome is Outcome.RUNNING:
        return f"{what} may be as much as {look.at_most:.3g} where {allowed:g} is allowed, {after}"
    proof = f"{what} where {allowed:g} is allowed, {after} (p = {p_value:.1g})"
    if comparison.side is Side.USERS:
        return f"users ask other things than in the reference window: {proof}"
    if comparison.is_input:
        return f"the arms are asked different things, so no comparison of them is fair: {proof}"
    return f"the canary answers differently: {proof}"


def too_few(comparison: Comparison, progress: Progress | None, needed: int) -> str:
    """Why there was no look yet."""
    what = _WORDS[comparison.feature]
    if progress is None:
        return f"{what} is known of fewer than {needed} requests of the reference"
    if comparison.side is Side.ARMS:
        seen = f"{progress.requests} canary and {progress.against} stable requests"
    else:
        seen = f"{progress.requests} requests"
    return f"{what} is known of {seen}; at least {needed} are needed"
