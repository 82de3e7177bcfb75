"""Tells whether the canary's answers to the golden set are worse than the champion's.

Scores are compared prompt by prompt: prompts differ far more in difficulty than versions do in skill. The
golden set is asked whole, at temperature 0, and is all that the gate is about: its mean drop is known, not estimated,
so a drop beyond the margin is a fail. No error of sampling is left in it. What is left is the engine's own: at
temperature 0 too, another batch may round differently and change an answer.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gates.analyses.base import GateSettings, StageUse
from gates.model import GateOutcome, Sample, Scorer, Share, Verdict
from gates.traffic import GateForecast


class QualityGate(GateSettings):
    """The canary's mean score on the golden set may be `max_drop` below the champion's at most."""

    # Judged once, in the offline stage.
    name = "quality"
    stages = (StageUse("offline", by_default=True),)
    several = False

    scorer: Scorer = Scorer.CONTAINS
    """For prompts that name none themselves."""
    max_drop: Share = 0.03
    """Of the mean score, 0 to 1."""
    min_prompts: Sample = 10
    """Answered by both versions."""


NO_WORDS = "are they cut off at max_tokens, before the answer that follows a reasoning begins?"
"""About answers that are empty in both arms."""
NOTHING_SCORES = f"a canary that scores nothing would pass too; look at the answers: {NO_WORDS}"
"""Where no arm's mean score is above what it may drop by."""
Scores = Mapping[str, float]
"""How good one version's answers to a golden set are, 0 to 1 by prompt. One without an answer is missing, not 0."""


def mean_of(scores: Scores) -> float:
    """Over all prompts; 0 when there is none."""
    return sum(scores.values()) / len(scores) if scores else 0.0


def judge_quality(settings: QualityGate, stable: Scores, canary: Scores) -> Verdict:
    """Compare the mean score of both versions over the same prompts."""
    both = stable.keys() & canary.keys()
    # One unanswered prompt is enough: which ones a version leaves out is no accident.
    if len(both) < len(stable.keys() | canary.keys()) or len(both) < settings.min_prompts:
        reason = (
            f"{len(canary)} prompts are answered by the canary and {len(stable)} by the champion, "
            f"{len(both)} by both; the same prompts, at least {settings.min_prompts}, are needed"
        )
        numbers = {"prompts": float(len(both))}
        return Verdict(gate=QualityGate.name, outcome=GateOutcome.INCONCLUSIVE, reason=reason, numbers=numbers)
    drop = float(np.mean([score - canary[prompt] for prompt, score in sorted(stable.items())]))
    of_stable, of_canary = mean_of(stable), mean_of(canary)
    sentence = (
        f"canary scores {of_canary:.2f} against {of_stable:.2f} of the champion on {len(both)} golden prompts "
        f"({of_canary - of_stable:+z.2f}, allowed {-settings.max_drop:+g})"
    )
    numbers = {"canary_mean_score": of_canary, "stable_mean_score": of_stable, "mean_score_drop": drop}
    outcome = GateOutcome.PASS if within_margin(drop, settings) else GateOutcome.FAIL
    if max(of_stable, of_canary) <= settings.max_drop:
        outcome, sentence = GateOutcome.INCONCLUSIVE, f"{sentence}: {NOTHING_SCORES}"
    numbers |= {"prompts": float(len(both))}
    return Verdict(gate=QualityGate.name, outcome=outcome, reason=sentence, numbers=numbers)


def within_margin(drop: float, settings: QualityGate) -> bool:
    """Whether a mean drop is allowed."""
    # 1 - 0.97 is a little more than 0.03 to a computer.
    return drop <= settings.max_drop + 1e-9


def quality_forecast(settings: QualityGate, *, prompts: int) -> GateForecast:
    """A golden set passes a version at once, or never; what it can prove depends on how many prompts it has.

    The regression asked about is the worst of all: every prompt that the champion answers rightly is answered wrongly.
    """
    wrong = next((n for n in range(1, prompts + 1) if not within_margin(n / prompts, settings)), None)
    return GateForecast(
        gate=QualityGate.name,
        unit="prompts",
        scale="score",
        canary_requests_to_pass=settings.min_prompts,
        regression_share=1.0,
        canary_requests_to_fail=None if within_margin(1.0, settings) else settings.min_prompts,
        smallest_regression_share=None if wrong is None else wrong / prompts,
        reachable=prompts >= settings.min_prompts,
    )


def judge_part(
    settings: QualityGate, of_stable: Scores, of_canary: Scores, *, prompts: int, deadline_passed: bool = False
) -> Verdict:
    """The verdict on a golden set of so many prompts while it is being asked: of the whole set, as everywhere.

    Before that it fails where the drop of the whole set is beyond the margin whatever the other prompts score.
    """
    seen, stable, canary = len(of_canary), mean_of(of_stable), mean_of(of_canary)
    if seen == prompts:
        return judge_quality(settings, of_stable, of_canary)
    left, outcome = prompts - seen, GateOutcome.INCONCLUSIVE if deadline_passed else GateOutcome.RUNNING
    words = f"the other {left} decide"
    # The least drop: stable scores 0 on each prompt that is left, and the canary 1.
    if not within_margin(((stable - canary) * seen - left) / prompts, settings):
        outcome, words = GateOutcome.FAIL, f"worse than allowed whatever the other {left} score"
    reason = (
        f"canary scores {canary:.2f} against {stable:.2f} on stable over {seen:,} of {prompts:,} golden prompts "
        f"({canary - stable:+z.2f}, allowed {-settings.max_drop:+g}): {words}"
    )
    numbers = {"canary_mean_score": canary, "stable_mean_score": stable, "mean_score_drop": stable - canary}
    return Verdict(gate=QualityGate.name, outcome=outcome, reason=reason, numbers={**numbers, "prompts": float(seen)})
