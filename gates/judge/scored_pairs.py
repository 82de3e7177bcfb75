"""A judge's scores on their way to become evidence: they wait until the judge has passed its control."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from gates.evidence.batch import ArmName, Dimension, PodEvidence
from gates.judge.pair_judge import JudgedPair, PairJudge


class ScoresEvidence(TypedDict, total=False):
    """The part of a batch that scores fill."""

    arms: tuple[PodEvidence, ...]
    dimensions: Mapping[ArmName, Mapping[Dimension, tuple[float, ...]]]
    missing: Mapping[str, str]


class ScoredPairs:
    """Asks the judge for the pairs in its sample and keeps what it says until somebody takes it."""

    def __init__(self, judge: PairJudge) -> None:
        self.judge = judge
        self._scores: list[JudgedPair] = []

    async def ask(self, key: str, prompt: str, stable: str, canary: str) -> None:
        """Have both answers to one prompt scored, if the pair that `key` names is in the sample and says anything."""
        if self.judge.wants(key) and (stable.strip() or canary.strip()):
            scored = await self.judge.judge(key, prompt, stable, canary)
            self._scores += [scored] if isinstance(scored, JudgedPair) else []

    def drain(self) -> ScoresEvidence:
        """What came since the last call, as that of two pods, one to one: scores arrive long after a pair's times.

        An untrusted judge must not become evidence; its scores stay here, and the evidence says why they are missing.
        """
        if self.judge.control.ok is not True:
            return {"missing": {"judge": self.judge.control.reason}}
        scores, self._scores = self._scores, []
        if not scores:
            return {}
        arms = (
            PodEvidence(arm=ArmName.STABLE, scores=tuple(score.stable for score in scores)),
            PodEvidence(arm=ArmName.CANARY, scores=tuple(score.canary for score in scores)),
        )
        return {"arms": arms, "dimensions": _dimensions(scores)}


def _dimensions(scores: Sequence[JudgedPair]) -> Mapping[ArmName, Mapping[Dimension, tuple[float, ...]]]:
    """By arm, what each dimension got; every pair has the same dimensions."""
    asked = scores[0].stable_dimensions
    return {
        ArmName.STABLE: {each: tuple(score.stable_dimensions[each] for score in scores) for each in asked},
        ArmName.CANARY: {each: tuple(score.canary_dimensions[each] for score in scores) for each in asked},
    }
