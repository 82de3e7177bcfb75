"""Tells whether the canary's answers to the golden set are worse than the champion's.

Scores are compared prompt by prompt: prompts differ far more in difficulty than versions do in skill. The
golden set is asked once, at temperature 0, and is all there is: whether the mean drop on it is within the
margin is seen, not estimated. A drop beyond the margin fails when the evidence that the version is worse
reaches the gate's share of the delivery's budget; when a few prompts could explain it, the verdict is
`inconclusive`: it does not promote, and a larger golden set would tell.
"""

from __future__ import annotations

import math

import numpy as np

from gates.evalues.exchange import Array
from gates.evalues.paired import Lower
from gates.model import AnswerScores, Outcome, Verdict
from gates.question import as_odds
from gates.spec import QualityGate

GATE = "quality"


def judge_quality(settings: QualityGate, evidence: AnswerScores, *, rollback: float) -> Verdict:
    """Compare the mean score of both versions over the same prompts.

    `rollback` is the gate's share of the chance that a version that is no worse is taken back.
    """
    stable, canary = evidence.stable, evidence.canary
    prompts = stable.by_prompt.keys() | canary.by_prompt.keys()
    both = stable.by_prompt.keys() & canary.by_prompt.keys()
    # One unanswered prompt is enough: which ones a version leaves out is no accident.
    if len(both) < len(prompts) or len(both) < settings.min_prompts:
        reason = (
            f"{len(canary.by_prompt)} prompts are answered by the canary and {len(stable.by_prompt)} by the champion, "
            f"{len(both)} by both; the same prompts, at least {settings.min_prompts}, are needed"
        )
        return Verdict(gate=GATE, outcome=Outcome.INCONCLUSIVE, reason=reason, numbers={"prompts": float(len(both))})
    drops = np.asarray([score - canary.by_prompt[prompt] for prompt, score in sorted(stable.by_prompt.items())])
    log_worse, log_needed = _log_worse(drops), -math.log(rollback)
    outcome = _outcome(float(drops.mean()), settings.max_drop, log_worse, log_needed)
    sentence = (
        f"canary scores {canary.mean:.2f} against {stable.mean:.2f} of the champion on {len(drops)} golden prompts "
        f"({canary.mean - stable.mean:+.2f}, allowed {-settings.max_drop:+g})"
    )
    if outcome is not Outcome.PASS:
        sentence += f": evidence {as_odds(log_worse)} that it is worse"
    if outcome is Outcome.INCONCLUSIVE:
        sentence += f", {math.exp(log_needed):,.0f}:1 needed"
    numbers = {
        "canary_mean_score": canary.mean,
        "stable_mean_score": stable.mean,
        "mean_score_drop": float(drops.mean()),
        "evidence_worse": math.exp(min(log_worse, math.log(1e12))),
        "evidence_worse_needed": math.exp(log_needed),
        "prompts": float(len(drops)),
    }
    return Verdict(gate=GATE, outcome=outcome, reason=sentence, numbers=numbers)


def _outcome(drop: float, max_drop: float, log_worse: float, log_needed: float) -> Outcome:
    if drop <= max_drop:
        return Outcome.PASS
    return Outcome.FAIL if log_worse >= log_needed else Outcome.INCONCLUSIVE


def _log_worse(drops: Array) -> float:
    """Bets on every prompt at once: when neither version is better, either could have given either answer."""
    process = Lower(max_drop=0.0)
    process.feed(drops, 0.0)
    return float(process.log_worse)
