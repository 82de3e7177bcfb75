"""Quality as a sequential test: the answers to a golden set are judged while it is being asked.

Prompts come in a random order, each once. Until the last one, evidence on the mean drop of all prompts is the wealth of
bets on those seen so far (`gates.stats.paired`), which may be looked at after each. With the last one, the mean drop
is known and is judged as `judge_quality` judges it. Both ways to fail have half of the error budget.
"""

from __future__ import annotations

import math

import numpy as np

from gates.analyses.base import as_odds, as_ratio
from gates.analyses.quality import GATE, NOTHING_SCORES, QualityGate, judge_quality
from gates.model import AnswerScores, GateOutcome, Scores, Verdict
from gates.stats.paired import PairedScoresProcess


class QualityTest:
    """Takes the scores of one prompt after the other."""

    def __init__(self, settings: QualityGate, *, prompts: int, rollback: float, accept: float) -> None:
        """`prompts` is how many the golden set has; the chances are as in `AnalysisPlan`, for this gate alone."""
        self._settings, self._prompts = settings, prompts
        self._half, self._log_fail, self._log_pass = rollback / 2, -math.log(rollback / 2), -math.log(accept)
        self._process = PairedScoresProcess(max_drop=settings.max_drop, tolerance=settings.max_drop)
        self._stable: dict[str, float] = {}
        self._canary: dict[str, float] = {}
        self._failed: Verdict | None = None
        self._whole: Verdict | None = None
        """Of the whole set: it takes a while, and changes no more."""

    def take(self, prompt: str, stable: float | None, canary: float | None) -> None:
        """Learn from a prompt that both have answered; of one that is asked again, nothing is learnt."""
        if stable is None or canary is None or prompt in self._stable:
            return
        self._stable[prompt], self._canary[prompt] = stable, canary
        self._process.feed(np.asarray([stable - canary]), 0.0)
        if self._failed is None and self._process.log_worse >= self._log_fail:
            self._failed = self._so_far(GateOutcome.FAIL)

    def verdict(self, *, deadline_passed: bool = False) -> Verdict:
        """What the scores say so far; a fail stays one."""
        if self._failed:
            return self._failed
        if len(self._stable) == self._prompts:
            self._whole = self._whole or self._of_all()
            return self._whole
        enough = len(self._stable) >= self._settings.min_prompts and not self._shows_nothing
        if enough and self._process.log_fine >= self._log_pass:
            return self._so_far(GateOutcome.PASS)
        return self._so_far(GateOutcome.INCONCLUSIVE if deadline_passed else GateOutcome.RUNNING)

    def _of_all(self) -> Verdict:
        evidence = AnswerScores(stable=Scores(by_prompt=self._stable), canary=Scores(by_prompt=self._canary))
        return judge_quality(self._settings, evidence, rollback=self._half)

    def _so_far(self, outcome: GateOutcome) -> Verdict:
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
            f"prompts ({canary - stable:+z.2f}, allowed {-self._settings.max_drop:+g}): {self._evidence(outcome)}"
        )
        numbers |= {"canary_mean_score": canary, "stable_mean_score": stable, "mean_score_drop": stable - canary}
        return Verdict(gate=GATE, outcome=outcome, reason=reason, numbers=numbers)

    @property
    def _shows_nothing(self) -> bool:
        best = max(sum(scores.values()) for scores in (self._stable, self._canary))
        return best <= self._settings.max_drop * len(self._stable)

    def _evidence(self, outcome: GateOutcome) -> str:
        if outcome is GateOutcome.FAIL:
            return f"evidence {as_odds(float(self._process.log_worse))} that it is worse than allowed"
        if self._shows_nothing:
            return NOTHING_SCORES
        needed = "" if outcome is GateOutcome.PASS else f" ({math.exp(self._log_pass):,.0f}:1 needed)"
        return f"evidence {as_odds(float(self._process.log_fine))} that it is within the margin{needed}"
