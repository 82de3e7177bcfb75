"""Tells whether the canary's answers to the golden set are worse than the champion's.

Scores are compared prompt by prompt: prompts differ far more in difficulty than versions do in skill. The
golden set is asked whole, at temperature 0, and is all that the gate is about: its mean drop is known, not estimated,
so a drop beyond the margin is a fail. No error of sampling is left in it. What is left is the engine's own: at
temperature 0 too, another batch may round differently and change an answer.

How the scores of somebody else's questions came about is unknown; they may be a sample. There a drop beyond the margin
fails when chance is an unlikely reason, and is `inconclusive` when a few questions could explain it.

While a golden set is still being asked, in a random order, evidence on the mean drop of all prompts is the wealth of
bets on those seen so far (`gates.stats.paired`), which may be looked at after each. What is known is not estimated:
where the drop of the whole set is beyond the margin whatever the other prompts score, the version fails.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import scipy  # It loads `scipy.stats`, which takes a second, only when that is used.

from gates.analyses.base import GateSettings, StageUse, as_odds, as_ratio
from gates.model import AnswerScores, GateOutcome, Sample, Scorer, Scores, Share, Verdict
from gates.stats.e_process import Array
from gates.stats.paired import PairedScoresProcess
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


TRIES = 3
"""How often a prompt is asked that one of both does not answer."""


class QualityTest:
    """Takes the scores of one prompt after the other."""

    def __init__(self, settings: QualityGate, *, prompts: int, rollback: float, accept: float) -> None:
        """`prompts` is how many the golden set has; the chances are as in `AnalysisPlan`, for this gate alone."""
        self._settings, self._prompts = settings, prompts
        self._log_fail, self._log_pass = -math.log(rollback), -math.log(accept)
        self._process = PairedScoresProcess(max_drop=settings.max_drop, tolerance=settings.max_drop)
        self._stable: dict[str, float] = {}
        self._canary: dict[str, float] = {}
        self._unanswered: Counter[str] = Counter()
        self._drop = 0.0
        """Sum over the prompts that both answered."""
        self._final: Verdict | None = None
        """A fail, or the verdict on the whole set."""

    def take(self, prompt: str, stable: float | None, canary: float | None) -> None:
        """Learn from a prompt that was asked; from one that both have answered before, nothing is learnt."""
        if prompt in self._stable:
            return
        if stable is None or canary is None:
            self._unanswered[prompt] += 1
            return
        self._unanswered.pop(prompt, None)
        self._stable[prompt], self._canary[prompt] = stable, canary
        self._drop += stable - canary
        self._process.feed(np.asarray([stable - canary]), 0.0)
        self._final = self._final or self._decision()

    def _decision(self) -> Verdict | None:
        if self._process.log_worse >= self._log_fail:
            odds = as_odds(float(self._process.log_worse))
            return self._so_far(GateOutcome.FAIL, f"evidence {odds} that it is worse than allowed")
        if not self._left:
            evidence = AnswerScores(stable=Scores(by_prompt=self._stable), canary=Scores(by_prompt=self._canary))
            return judge_quality(self._settings, evidence)
        # The least drop of the whole set: stable scores 0 on each prompt that is left, and the canary 1.
        if not within_margin((self._drop - self._left) / self._prompts, self._settings):
            return self._so_far(GateOutcome.FAIL, f"worse than allowed whatever the other {self._left} score")
        return None

    @property
    def asked_whole(self) -> bool:
        """Whether each prompt has its scores, or was asked often enough: more answers tell nothing new."""
        given_up = sum(tries >= TRIES for tries in self._unanswered.values())
        return len(self._stable) + given_up == self._prompts

    def verdict(self, *, deadline_passed: bool = False) -> Verdict:
        """What the scores say so far; a fail stays one."""
        if self._final:
            return self._final
        fine = f"evidence {as_odds(float(self._process.log_fine))} that it is within the margin"
        enough = len(self._stable) >= self._settings.min_prompts and not self._shows_nothing
        if enough and self._process.log_fine >= self._log_pass:
            return self._so_far(GateOutcome.PASS, fine)
        if self.asked_whole:
            words = f"without the other {self._left}, which were asked {TRIES} times, nothing passes"
            return self._so_far(GateOutcome.INCONCLUSIVE, words)
        outcome = GateOutcome.INCONCLUSIVE if deadline_passed else GateOutcome.RUNNING
        if self._shows_nothing:
            return self._so_far(outcome, NOTHING_SCORES)
        words = f"{fine} ({math.exp(self._log_pass):,.0f}:1 needed); {self._left} more prompts decide"
        return self._so_far(outcome, words)

    @property
    def _left(self) -> int:
        return self._prompts - len(self._stable)

    def _so_far(self, outcome: GateOutcome, words: str) -> Verdict:
        seen = len(self._stable)
        numbers = {
            "prompts": float(seen),
            "evidence_worse": as_ratio(float(self._process.log_worse)),
            "evidence_worse_needed": as_ratio(self._log_fail),
            "evidence_fine": as_ratio(float(self._process.log_fine)),
            "evidence_fine_needed": as_ratio(self._log_pass),
        }
        if not seen:
            reason = "no prompt of the golden set is answered by both"
            return Verdict(gate=QualityGate.name, outcome=outcome, reason=reason, numbers=numbers)
        stable, canary = (sum(scores.values()) / seen for scores in (self._stable, self._canary))
        reason = (
            f"canary scores {canary:.2f} against {stable:.2f} on stable over {seen:,} of {self._prompts:,} golden "
            f"prompts ({canary - stable:+z.2f}, allowed {-self._settings.max_drop:+g}): {words}"
        )
        numbers |= {"canary_mean_score": canary, "stable_mean_score": stable, "mean_score_drop": stable - canary}
        return Verdict(gate=QualityGate.name, outcome=outcome, reason=reason, numbers=numbers)

    @property
    def _shows_nothing(self) -> bool:
        best = max(sum(scores.values()) for scores in (self._stable, self._canary))
        return bool(self._stable) and best <= self._settings.max_drop * len(self._stable)
