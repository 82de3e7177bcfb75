"""Tells whether the canary's answers to the golden set are worse than the champion's.

Scores are compared prompt by prompt: prompts differ far more in difficulty than versions do in skill.
The whole set is asked once, so there is no more evidence to wait for. A mean drop beyond the margin
fails when it is significant over prompts like these; when one or two prompts could explain it, the
verdict is `inconclusive`: it does not promote, and a larger golden set would tell.
"""

from __future__ import annotations

from gates.chance import mean_above, standard_error
from gates.decide import Finding, decide, undecided
from gates.model import AnswerScores, Scores, Verdict
from gates.spec import QualityGate

GATE = "quality"


def judge_quality(settings: QualityGate, evidence: AnswerScores, *, deadline_passed: bool) -> Verdict:
    """Compare the mean score of both versions over the same prompts."""
    stable, canary = evidence.stable, evidence.canary
    prompts = stable.by_prompt.keys() | canary.by_prompt.keys()
    both = stable.by_prompt.keys() & canary.by_prompt.keys()
    # One unanswered prompt is enough: which ones a version leaves out is no accident.
    if len(both) < len(prompts) or len(both) < settings.min_prompts:
        reason = (
            f"{len(canary.by_prompt)} prompts are answered by the canary and {len(stable.by_prompt)} by the champion, "
            f"{len(both)} by both; the same prompts, at least {settings.min_prompts}, are needed"
        )
        return undecided(GATE, reason, {"prompts": float(len(both))}, deadline_passed=deadline_passed)
    return decide(GATE, _finding(settings, stable, canary), deadline_passed=deadline_passed)


def _finding(settings: QualityGate, stable: Scores, canary: Scores) -> Finding:
    drops = [score - canary.by_prompt[prompt] for prompt, score in stable.by_prompt.items()]
    drop = stable.mean - canary.mean
    error = standard_error(drops) if len(drops) > 1 else 0.0
    sentence = (
        f"canary scores {canary.mean:.2f} against {stable.mean:.2f} of the champion on {len(drops)} golden prompts "
        f"({canary.mean - stable.mean:+.2f} ± {error:.2f}, allowed {-settings.max_drop:+g})"
    )
    numbers = {
        "canary_mean_score": canary.mean,
        "stable_mean_score": stable.mean,
        "mean_score_drop": drop,
        "mean_score_drop_standard_error": error,
        "prompts": float(len(drops)),
    }
    return Finding(
        sentence=sentence,
        numbers=numbers,
        beyond_margin=drop > settings.max_drop,
        p_value=mean_above(drops, settings.max_drop),
    )
