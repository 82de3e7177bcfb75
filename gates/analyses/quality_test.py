"""Quality as a sequential test: the answers to a golden set are judged while it is being asked.

Prompts come in a random order. Until the last one, evidence on the mean drop of all prompts is the wealth of bets on
those seen so far (`gates.stats.paired`), which may be looked at after each. What is known is not estimated: where the
drop of the whole set is beyond the margin whatever the other prompts score, the version fails, and with the last
prompt the set is judged as `judge_quality` judges it.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from gates.analyses.base import as_odds, as_ratio
from gates.analyses.quality import GATE, NOTHING_SCORES, QualityGate, judge_quality, within_margin
from gates.model import AnswerScores, GateOutcome, Scores, Verdict
from gates.stats.paired import PairedScoresProcess

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
            return Verdict(gate=GATE, outcome=outcome, reason=reason, numbers=numbers)
        stable, canary = (sum(scores.values()) / seen for scores in (self._stable, self._canary))
        reason = (
            f"canary scores {canary:.2f} against {stable:.2f} on stable over {seen:,} of {self._prompts:,} golden "
            f"prompts ({canary - stable:+z.2f}, allowed {-self._settings.max_drop:+g}): {words}"
        )
        numbers |= {"canary_mean_score": canary, "stable_mean_score": stable, "mean_score_drop": stable - canary}
        return Verdict(gate=GATE, outcome=outcome, reason=reason, numbers=numbers)

    @property
    def _shows_nothing(self) -> bool:
        best = max(sum(scores.values()) for scores in (self._stable, self._canary))
        return bool(self._stable) and best <= self._settings.max_drop * len(self._stable)
