"""The gates a delivery spec can ask for, with their margins and the sample they need."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum

from pydantic import Field

from gates.burn.spec import BurnRateGate
from gates.drift.spec import DriftGate
from gates.judge.spec import JudgeGate
from gates.shares import Sample, Share
from tidegate.core.model import Contradiction, SpecModel
from tidegate.core.quantities import Duration, Percent, PercentagePoints

USUAL_LOOK = timedelta(seconds=10)
"""Between two batches of evidence, where nobody says how often anything is scraped."""


class LatencyMetric(StrEnum):
    """Which time of a request."""

    TTFT = "ttft"
    """Until the first token."""
    ITL = "itl"
    """Between tokens: the mean of one request, because tokens of a request are not independent."""
    E2E = "e2e"
    """Until the last token."""


class Scorer(StrEnum):
    """How an answer is compared with the expected one; each gives 0 to 1."""

    CONTAINS = "contains"
    """1 when the expected words stand in the answer, together and in order."""
    EXACT = "exact"
    """1 when the answer has the expected words and no others."""
    NUMERIC = "numeric"
    """1 when the last number of the answer is the expected one."""
    F1 = "f1"
    """The share of words that both have, whatever their order."""
    JSON_SCHEMA = "json_schema"
    """1 when the answer is JSON that fits the `schema` of its line."""
    SEMANTIC = "semantic"
    """How near the meanings are: the cosine of both embeddings, 0 when it is negative."""
    LOG_LIKELIHOOD = "log_likelihood"
    """How likely the expected answer is to the served model: the geometric mean of its tokens' probabilities."""


class LatencyGate(SpecModel):
    """The canary's quantile may exceed that of the concurrent stable arm by `max_increase` at most."""

    metric: LatencyMetric = LatencyMetric.TTFT
    quantile: float = Field(default=0.95, gt=0, lt=1)
    max_increase: Percent = Field(default=0.2, validate_default=False)
    """Of the stable arm's quantile; 0.2 is 20 %. The gate passes once the canary is proven to be within it."""
    tolerance: Percent = Field(default=0.02, validate_default=False)
    """The spread between pods that is nobody's fault. The gate fails once the canary is proven to be slower by more."""
    min_requests: Sample = 40
    """Answered by the canary before a pass, however clear the evidence; one that failed has no latency."""

    def contradictions(self) -> Iterator[Contradiction]:
        """What is tolerated must be allowed."""
        if self.tolerance >= self.max_increase:
            yield Contradiction(
                ("tolerance",), f"{self.tolerance:.0%}", f"less than max_increase, {self.max_increase:.0%}"
            )


class ErrorsGate(SpecModel):
    """The canary's share of failed requests may exceed the stable arm's by `max_increase` at most."""

    max_increase: PercentagePoints = Field(default=0.005, validate_default=False)
    """Difference of two shares; 0.005 is 0.5 percentage points. The gate passes once the canary is within it."""
    tolerance: PercentagePoints = Field(default=0.0, validate_default=False)
    """The gate fails once the canary is proven to fail more often than stable by more than this."""
    min_requests: Sample = 40
    """On the canary before a pass, whatever became of them."""

    def contradictions(self) -> Iterator[Contradiction]:
        """What is tolerated must be allowed."""
        if self.tolerance >= self.max_increase:
            yield Contradiction(
                ("tolerance",), f"{self.tolerance * 100:g}pp", f"less than max_increase, {self.max_increase * 100:g}pp"
            )


class QualityGate(SpecModel):
    """The canary's mean score on the golden set may be `max_drop` below the champion's at most."""

    scorer: Scorer = Scorer.CONTAINS
    """For prompts that name none themselves."""
    max_drop: Share = 0.03
    """Of the mean score, 0 to 1."""
    min_prompts: Sample = 10
    """Answered by both versions."""


class Likeness(StrEnum):
    """In what two answers are to be alike; each gives 0 to 1."""

    WORDS = "words"
    """The share of words that both have."""
    MEANING = "meaning"
    """The cosine of both embeddings, 0 when it is negative."""


class AgreementGate(SpecModel):
    """Answers of both arms to the same prompts must be alike, and the canary's not much later."""

    likeness: Likeness = Likeness.WORDS
    min_similarity: Share = 0.6
    """Mean likeness over all pairs, 0 to 1; a pair that did not arrive counts 0."""
    max_ttft_increase: Percent | None = None
    """Of the canary's TTFT over stable's within pairs; not looked at when absent."""
    min_coverage: Share = 0.9
    """The share of prompts that came back from both arms; without proof of it nothing passes."""
    min_same_language: Share | None = None
    """The share of pairs whose answers are in one language; not looked at when absent, as all that follows."""
    min_same_finish: Share | None = None
    """The share of pairs that end for the same reason: both by themselves, or both at the limit."""
    max_refusal_increase: PercentagePoints | None = None
    """Of answers that decline the request in words."""
    max_length_change: Percent | None = None
    """Of the answers' lengths within pairs, in tokens, to either side."""
    min_pairs: Sample = 20
    """Sent before a pass, whether or not their answers arrived."""


class ScoresGate(SpecModel):
    """The canary's mean score, given by a judge, may be `max_drop` below stable's at most."""

    max_drop: Share = 0.05
    """Of the mean, 0 to 1. The gate passes once the canary is proven to be within it."""
    tolerance: Share = 0.0
    """The gate fails once the canary's mean is proven to be lower than stable's by more than this."""
    min_pairs: Sample = 20
    """Judged before a pass."""

    def contradictions(self) -> Iterator[Contradiction]:
        """What is tolerated must be allowed."""
        if self.tolerance >= self.max_drop:
            yield Contradiction(("tolerance",), f"{self.tolerance:g}", f"less than max_drop, {self.max_drop:g}")


class Budget(SpecModel):
    """How often a whole delivery may be wrong: all gates, stages, regions and looks together."""

    rollback: Percent = Field(default=0.01, gt=0, le=0.2, validate_default=False)
    """The chance that a version that is no worse is taken back."""
    accept: Percent = Field(default=0.05, gt=0, le=0.5, validate_default=False)
    """The chance that a version that is worse by a margin passes that gate."""
    temper: bool = True
    """Weaken evidence by the spread seen between stable pods."""
    look: Duration | None = Field(default=None, gt=timedelta(0))
    """Between two batches of evidence; as often as the metrics' scrape interval allows when absent, 10 s at least."""


class Gates(SpecModel):
    """The gates of a delivery; stages name those that they wait for."""

    budget: Budget = Budget()
    latency: LatencyGate | None = None
    errors: ErrorsGate | None = None
    quality: QualityGate | None = None
    agreement: AgreementGate | None = None
    judge: JudgeGate | None = None
    drift: DriftGate | None = None
    burn_rate: BurnRateGate | None = None
