"""Tells whether the canary fails more requests than the stable arm beside it.

5xx, missing answers and cut streams are one kind of failure, 4xx another. Users do not know which arm
they reach, so both arms get the same share of bad requests: more 4xx on the canary is its own doing.
"""

from __future__ import annotations

from gates.chance import more_failures
from gates.decide import Finding, decide, too_few, undecided
from gates.model import Counts, NoData, RequestCounts, Verdict
from gates.spec import ErrorsGate

GATE = "errors"


def judge_errors(settings: ErrorsGate, evidence: RequestCounts, *, deadline_passed: bool) -> Verdict:
    """Compare the shares of failed and of refused requests; the worse of the two decides.

    They are not added up: a canary that refuses what it should answer would hide behind a stable that fails.
    """
    stable, canary = evidence.stable, evidence.canary
    if isinstance(canary, NoData):
        return undecided(GATE, f"no requests of the canary: {canary.reason}", {}, deadline_passed=deadline_passed)
    if isinstance(stable, NoData):
        return undecided(GATE, f"no requests of stable: {stable.reason}", {}, deadline_passed=deadline_passed)
    lack = too_few("requests", stable.total, canary.total, settings.min_requests)
    if lack:
        return undecided(GATE, lack, _numbers(stable, canary), deadline_passed=deadline_passed)
    findings = [_finding(settings, kind, stable, canary) for kind in ("failed", "refused")]
    verdicts = [decide(GATE, finding, deadline_passed=deadline_passed) for finding in findings]
    return max(verdicts, key=lambda verdict: verdict.outcome)


def _finding(settings: ErrorsGate, kind: str, stable: Counts, canary: Counts) -> Finding:
    stable_bad: int = getattr(stable, kind)
    canary_bad: int = getattr(canary, kind)
    increase = canary_bad / canary.total - stable_bad / stable.total
    sentence = (
        f"canary {kind} {canary_bad} of {canary.total} requests ({canary_bad / canary.total:.1%}) against "
        f"{stable_bad} of {stable.total} ({stable_bad / stable.total:.1%}) on stable "
        f"({increase * 100:+.1f} pp, allowed {settings.max_increase * 100:+g} pp)"
    )
    return Finding(
        sentence=sentence,
        numbers={**_numbers(stable, canary), f"{kind}_increase_share": increase},
        beyond_margin=increase > settings.max_increase,
        p_value=more_failures(
            canary_bad,
            canary.total,
            reference_failed=stable_bad,
            reference_total=stable.total,
            margin=settings.max_increase,
        ),
    )


def _numbers(stable: Counts, canary: Counts) -> dict[str, float]:
    """What was counted, also while it is too little to judge."""
    arms = {"canary": canary, "stable": stable}
    return {
        f"{name}_{kind}": float(count)
        for name, counts in arms.items()
        for kind, count in (
            ("requests", counts.total),
            ("failed_requests", counts.failed),
            ("refused_requests", counts.refused),
        )
    }
