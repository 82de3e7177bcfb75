"""Tells whether the canary's answers to the golden set are worse than the champion's.

Scores are compared prompt by prompt: prompts differ far more in difficulty than versions do in skill. The
golden set is asked whole, at temperature 0, and is all that the gate is about: its mean drop is known, not estimated,
so a drop beyond the margin is a fail. No error of sampling is left in it. What is left is the engine's own: at
temperature 0 too, another batch may round differently and change an answer.

How the scores of somebody else's questions came about is unknown; they may be a sample. There a drop beyond the margin
fails when chance is an unlikely reason, and is `inconclusive` when a few questions could explain it.
"""

from __future__ import annotations

import math

import numpy as np
import scipy  # It loads `scipy.stats`, which takes a second, only when that is used.

from gates.analyses.base import GateSettings, StageUse
from gates.model import AnswerScores, GateOutcome, Sample, Scorer, Share, Verdict
from gates.stats.e_process import Array
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
RESAMPLES = 2**17
"""Up to 17 prompts every way of swapping is tried; beyond that, as many drawn with a fixed seed."""


def judge_quality(
    settings: QualityGate,
    evidence: AnswerScores,
    *,
    sampled: float | None = None,
    prompts: str = "golden prompts",
) -> Verdict:
    """Compare the mean score of both versions over the same prompts.

    `sampled` is for answers that may be a sample: the gate's share of the chance that a version that is no worse is
    rolled back. None is for a golden set that was asked whole at temperature 0. `prompts` is their name in a
    sentence.
    """
    stable, canary = evidence.stable, evidence.canary
    asked = stable.by_prompt.keys() | canary.by_prompt.keys()
    both = stable.by_prompt.keys() & canary.by_prompt.keys()
    # One unanswered prompt is enough: which ones a version leaves out is no accident.
    if len(both) < len(asked) or len(both) < settings.min_prompts:
        reason = (
            f"{len(canary.by_prompt)} prompts are answered by the canary and {len(stable.by_prompt)} by the champion, "
            f"{len(both)} by both; the same prompts, at least {settings.min_prompts}, are needed"
        )
        return Verdict(
            gate=QualityGate.name,
            outcome=GateOutcome.INCONCLUSIVE,
            reason=reason,
            numbers={"prompts": float(len(both))},
        )
    drops = np.asarray([score - canary.by_prompt[prompt] for prompt, score in sorted(stable.by_prompt.items())])
    sentence = (
        f"canary scores {canary.mean:.2f} against {stable.mean:.2f} of the champion on {len(drops)} {prompts} "
        f"({canary.mean - stable.mean:+z.2f}, allowed {-settings.max_drop:+g})"
    )
    numbers = {
        "canary_mean_score": canary.mean,
        "stable_mean_score": stable.mean,
        "mean_score_drop": float(drops.mean()),
        "prompts": float(len(drops)),
    }
    if max(stable.mean, canary.mean) <= settings.max_drop:
        reason = f"{sentence}: {NOTHING_SCORES}"
        return Verdict(gate=QualityGate.name, outcome=GateOutcome.INCONCLUSIVE, reason=reason, numbers=numbers)
    outcome = GateOutcome.PASS if within_margin(float(drops.mean()), settings) else GateOutcome.FAIL
    if sampled is not None:
        p_value = chance_of_drop(drops)
        numbers |= {"p_value": p_value, "p_value_needed": sampled}
        if outcome is GateOutcome.FAIL:
            sentence += f"; by chance that happens once in {1 / p_value:,.0f} times"
            if p_value > sampled:
                outcome = GateOutcome.INCONCLUSIVE
                sentence += f", and once in {1 / sampled:,.0f} would be needed: {_more(drops, sampled, prompts)}"
    return Verdict(gate=QualityGate.name, outcome=outcome, reason=sentence, numbers=numbers)


def within_margin(drop: float, settings: QualityGate) -> bool:
    """Whether a mean drop is allowed."""
    # 1 - 0.97 is a little more than 0.03 to a computer.
    return drop <= settings.max_drop + 1e-9


def _more(drops: Array, sampled: float, prompts: str) -> str:
    """How many would decide: when all that differ are worse, each halves the chance."""
    least, worse = math.ceil(-math.log2(sampled)), int(np.count_nonzero(drops > 0))
    add = max(math.ceil(least * len(drops) / worse) - len(drops), 1)
    return f"{len(drops)} {prompts} decide only if {least} or more are worse and none better; add about {add}"


def chance_of_drop(drops: Array) -> float:
    """P-value of the mean drop when either version could have given either answer (sign-flip permutation test).

    One look at a fixed sample: an e-value would pay for looks that nobody takes.
    """
    if not drops.any():
        return 1.0
    if len(drops) == 1:
        return 0.5 if drops[0] > 0 else 1.0
    found = scipy.stats.permutation_test(
        (drops,),
        lambda flipped, axis: np.mean(flipped, axis=axis),
        permutation_type="samples",
        alternative="greater",
        n_resamples=RESAMPLES,
        batch=2**12,
        vectorized=True,
        rng=np.random.default_rng(0),
    )
    return float(found.pvalue)


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
    settings: QualityGate, evidence: AnswerScores, *, prompts: int, deadline_passed: bool = False
) -> Verdict:
    """The verdict on a golden set of so many prompts while it is being asked: of the whole set, as everywhere.

    Before that it fails where the drop of the whole set is beyond the margin whatever the other prompts score.
    """
    seen, stable, canary = len(evidence.canary.by_prompt), evidence.stable.mean, evidence.canary.mean
    if seen == prompts:
        return judge_quality(settings, evidence)
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
