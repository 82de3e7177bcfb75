"""The gates a delivery spec can ask for, with their margins and the sample they need."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from tidegate.core.model import SpecModel
from tidegate.core.quantities import Percent, PercentagePoints


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


def _share(value: Any) -> Any:
    """Scores live in 0..1, so `0.03` and `3pp` say the same."""
    if isinstance(value, str) and value.endswith("pp"):
        try:
            return float(value.removesuffix("pp")) / 100
        except ValueError as error:
            raise ValueError("a share such as 0.03, or 3pp") from error
    return value


# Scores and shares: 0 to 1.
Share = Annotated[float, BeforeValidator(_share), Field(ge=0, le=1)]
Sample = Annotated[int, Field(ge=1)]


class LatencyGate(SpecModel):
    """The canary's quantile may exceed that of the concurrent stable arm by `max_increase` at most."""

    metric: LatencyMetric = LatencyMetric.TTFT
    quantile: float = Field(default=0.95, gt=0, lt=1)
    max_increase: Percent = Field(default=0.2, validate_default=False)
    """Of the stable arm's quantile; 0.2 is 20 %."""
    min_requests: Sample = 40
    """Answered requests on each arm; one that failed has no latency."""


class ErrorsGate(SpecModel):
    """The canary's share of failed requests may exceed the stable arm's by `max_increase` at most."""

    max_increase: PercentagePoints = Field(default=0.005, validate_default=False)
    """Difference of two shares; 0.005 is 0.5 percentage points."""
    min_requests: Sample = 40
    """On each arm, whatever became of them."""


class QualityGate(SpecModel):
    """The canary's mean score on the golden set may be `max_drop` below the champion's at most."""

    scorer: Scorer = Scorer.CONTAINS
    """For prompts that name none themselves."""
    max_drop: Share = 0.03
    """Of the mean score, 0 to 1."""
    min_prompts: Sample = 10
    """Answered by both versions."""


class AgreementGate(SpecModel):
    """Answers of both arms to the same prompts must be alike, and the canary's not much later."""

    min_similarity: Share = 0.6
    """Mean word F1 over all pairs, 0 to 1; a pair that did not arrive counts 0."""
    max_ttft_increase: Percent | None = None
    """On the median of canary to stable TTFT within pairs; not looked at when absent."""
    min_pairs: Sample = 20
    """Sent, whether or not their answers arrived."""


class Gates(SpecModel):
    """The gates of a delivery; stages name those that they wait for."""

    latency: LatencyGate | None = None
    errors: ErrorsGate | None = None
    quality: QualityGate | None = None
    agreement: AgreementGate | None = None
