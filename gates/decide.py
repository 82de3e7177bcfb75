"""The one rule by which every gate of this room turns a finding into an outcome.

With the minimum sample: within the margin by point estimate is `pass`; beyond it is `fail` only when
chance is an unlikely explanation. Beyond it but perhaps by chance stays `running`, and becomes
`inconclusive` at the deadline, as does a sample that stayed too small.
"""

from __future__ import annotations

from collections.abc import Mapping

from gates.chance import ALPHA
from gates.model import Outcome, Verdict
from tidegate.core.model import Value


class Finding(Value):
    """What a gate saw once the minimum sample was there."""

    sentence: str
    """The verdict's reason: both arms, the difference, what is allowed."""
    numbers: Mapping[str, float]
    beyond_margin: bool
    """By point estimate."""
    p_value: float
    """Of the regression being chance; only looked at beyond the margin."""


def undecided(gate: str, reason: str, numbers: Mapping[str, float], *, deadline_passed: bool) -> Verdict:
    """Not enough evidence: worth waiting for while there is time, never a pass."""
    outcome = Outcome.INCONCLUSIVE if deadline_passed else Outcome.RUNNING
    return Verdict(gate=gate, outcome=outcome, reason=reason, numbers=numbers)


def decide(gate: str, finding: Finding, *, deadline_passed: bool) -> Verdict:
    """Apply the rule above to one finding."""
    numbers = {**finding.numbers, "p_value": finding.p_value}
    if not finding.beyond_margin:
        return Verdict(gate=gate, outcome=Outcome.PASS, reason=finding.sentence, numbers=numbers)
    if finding.p_value < ALPHA:
        return Verdict(gate=gate, outcome=Outcome.FAIL, reason=finding.sentence, numbers=numbers)
    reason = f"{finding.sentence}, which may be chance (p = {finding.p_value:.2g})"
    return undecided(gate, reason, numbers, deadline_passed=deadline_passed)


def too_few(noun: str, stable: int, canary: int, needed: int) -> str | None:
    """Why the sample is too small, or None when it is not."""
    # Worth a sentence of its own: traffic is there, and the canary gets none of it.
    if canary == 0 and stable >= needed:
        return f"the canary has no {noun} while stable has {stable}; at least {needed} are needed"
    if min(stable, canary) < needed:
        return f"{canary} {noun} on the canary and {stable} on stable; at least {needed} each are needed"
    return None
