"""Evidence: what both arms did between two looks, no matter who counted it.

A batch is what `tidegate gate check` reads as one line, what the ledger keeps of a delivery, and what
every adapter hands to a judge. It holds counts, times and scores; never a prompt, never an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from tidegate.core.model import Value

Source = Literal["proxy", "users", "probe", "load", "samples"]


class LatencyMetric(StrEnum):
    """Which time of a request."""

    TTFT = "ttft"
    """Until the first token."""
    ITL = "itl"
    """Between tokens: the mean of one request, because tokens of a request are not independent."""
    E2E = "e2e"
    """Until the last token."""


def _whole(count: object) -> object:
    """500.0 is the integer 500 in JSON's schemas, and how pandas and JavaScript write it."""
    return int(count) if isinstance(count, float) and count.is_integer() else count


Count = Annotated[int, Field(ge=0, le=10**12), BeforeValidator(_whole)]
"""More than anybody serves between two looks would be an error of who counted."""


class Events(Value):
    """What happened since the look before."""

    total: Count
    """All events that the SLO counts."""
    bad: Count
    """Of these, what spends its budget."""

    @model_validator(mode="after")
    def _adds_up(self) -> Events:
        if self.bad > self.total:
            raise ValueError(f"at least {self.bad} events: the bad ones are among them")
        return self


Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
"""What takes longer than 30 years was not measured in seconds."""
SHORTEST_SECONDS = 1e-9
"""No clock tells less; a ratio to it would say nothing."""
Score = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


Total = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ArmName(StrEnum):
    """Which side of the comparison."""

    STABLE = "stable"
    CANARY = "canary"


class Dimension(StrEnum):
    """One side of how good an answer is, 0 to 1."""

    HELPFULNESS = "helpfulness"
    ACCURACY = "accuracy"
    COHERENCE = "coherence"
    SAFETY = "safety"


MOST_EDGES = 500
"""Of a histogram: what a comparison costs grows with their square, and how many there are is the canary's own word."""


class Buckets(Value):
    """A histogram's counts, not cumulated."""

    edges: tuple[Seconds, ...] = Field(min_length=1, max_length=MOST_EDGES)
    """Upper ends in seconds, rising; a count belongs to the first edge that it does not exceed."""
    counts: tuple[Count, ...]
    """One more than edges: the last counts what exceeded the last edge."""

    @model_validator(mode="after")
    def _fits(self) -> Buckets:
        if any(low >= high for low, high in zip(self.edges, self.edges[1:], strict=False)):
            raise ValueError("edges that rise")
        if len(self.counts) != len(self.edges) + 1:
            raise ValueError(f"{len(self.edges) + 1} counts, one for each edge and one for what is above the last")
        return self


def _form_of(times: object) -> str:
    return "[buckets]" if isinstance(times, Buckets | Mapping) else "[samples]"


Times = Annotated[
    Annotated[tuple[Seconds, ...], Tag("[samples]")] | Annotated[Buckets, Tag("[buckets]")], Discriminator(_form_of)
]
"""One number for each answered request, or a histogram of them."""


class PodEvidence(Value):
    """What one pod of one arm did since the batch before."""

    arm: ArmName
    pod: str = ""
    """Tells the pods of an arm apart, so that the spread between them can be seen; empty when unknown."""
    requests: Count = 0
    """That ended, whatever became of them."""
    errors: Count = 0
    """Of these, the server's fault: a 5xx, no answer in time, a stream that was cut."""
    refused: Count = 0
    """Of these, answered 4xx: counted apart, because a user can cause it too."""
    ttft: Times = ()
    """Time to first token; of answered requests, as all times."""
    itl: Times = ()
    """Mean time between tokens of one request: tokens of a request are not independent."""
    e2e: Times = ()
    """Until the last token."""
    prompt_tokens: Count = 0
    """Of prompts that were looked up in the prefix cache; 0 when nobody tells."""
    cached_tokens: Count = 0
    """Of these, what came from the cache."""
    scores: tuple[Score, ...] = ()
    """What a judge gave to answers of this pod, 1 is best."""

    @model_validator(mode="after")
    def _adds_up(self) -> PodEvidence:
        if self.errors + self.refused > self.requests:
            raise ValueError(f"at least {self.errors + self.refused} requests: errors and refused are among them")
        if self.cached_tokens > self.prompt_tokens:
            raise ValueError(f"at least {self.cached_tokens} prompt_tokens: cached ones are among them")
        return self


class PairedReply(Value):
    """How one arm answered one prompt; without a word of either."""

    ttft: Seconds | None = None
    itl: Seconds | None = None
    e2e: Seconds | None = None
    score: Score | None = None
    """A judge's; None when this pair was not judged."""
    output_tokens: Count | None = None
    finish_reason: str = ""
    refusal: bool | None = None
    """Whether the answer declines the request in words."""
    prompt_characters: Count | None = None
    """Of users' own prompts, which may differ between the arms, as the next."""
    prompt_language: str = ""
    """ISO 639-1, as detected; empty when nobody looked."""


class PairedAnswer(Value):
    """One prompt that both arms got at the same moment; an answer that did not arrive is None."""

    stable: PairedReply | None = None
    canary: PairedReply | None = None
    similarity: Score | None = None
    """How alike both answers are; None when one is missing, or both are empty."""


class ArmLoad(Value):
    """What one arm made of the load of one block."""

    requests: Count
    """All that ended, whatever became of them."""
    failed: Count = 0
    """Of these, not answered in full."""
    output_tokens: Count
    """Of requests that were answered in full: what is cut off is of no use to anybody."""
    seconds: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
    """From the first request to the end of the last."""
    engines: Annotated[int, Field(ge=1), BeforeValidator(_whole)] = 1
    """That shared the load."""
    engine_hour: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """What one of them costs in an hour; None when nobody says."""

    @model_validator(mode="after")
    def _adds_up(self) -> ArmLoad:
        if self.failed > self.requests:
            raise ValueError(f"at least {self.failed} requests: failed ones are among them")
        return self

    @property
    def tokens_per_second(self) -> float:
        """Of one engine."""
        return self.output_tokens / self.seconds / self.engines

    @property
    def cost(self) -> float | None:
        """Of all engines, for as long as the block took."""
        return None if self.engine_hour is None else self.engine_hour * self.engines * self.seconds / 3600


class LoadBlock(Value):
    """The same load on both arms: the same requests in the same order, by the same shape."""

    stable: ArmLoad
    canary: ArmLoad


class PodTrials(Value):
    """What one pod of one arm counted for a ratio gate since the batch before."""

    arm: ArmName
    pod: str = ""
    trials: Count = 0
    events: Count = 0
    """Of these, those that ended badly."""

    @model_validator(mode="after")
    def _adds_up(self) -> PodTrials:
        if self.events > self.trials:
            raise ValueError(f"at least {self.events} trials: the events are among them")
        return self


class PodHistogram(Value):
    """What one pod of one arm counted for a quantile gate since the batch before."""

    arm: ArmName
    pod: str = ""
    buckets: Buckets
    """Edges in the unit of the metric."""


class PodTotal(Value):
    """What one pod of one arm counted and added up for a mean gate since the batch before."""

    arm: ArmName
    pod: str = ""
    count: Count = 0
    total: Total = 0.0
    """The sum over all that were counted, in the unit of the metric."""


USUAL_LOOK = timedelta(seconds=10)
"""Between two batches of evidence, where nobody says how often anything is scraped."""


class Batch(Value):
    """Everything that was seen between the batch before and `time`."""

    time: float = Field(ge=0, le=1e11, allow_inf_nan=False)
    """Unix time in seconds (not milliseconds) at the end; batches of one source rise in time."""
    source: Source = "users"
    """Who counted: proxies and engines, the users' side, our own paired probe, our own load, or engines that keep
    samples of users' requests. Sources are judged apart."""
    arms: tuple[PodEvidence, ...] = ()
    """Each pod at most once. An arm that is missing here gives no evidence: it is not an arm with 0 errors."""
    pairs: tuple[PairedAnswer, ...] = ()
    blocks: tuple[LoadBlock, ...] = ()
    """Blocks of load that ended; a coin decided for each which arm had it first."""
    events: Events | None = None
    """What the queries of an SLO counted of the canary; None when nobody asked them."""
    answers: Mapping[ArmName, tuple[PairedReply, ...]] = {}
    """Sampled answers of each arm to users of its own, who asked other things: no pairs."""
    ratios: Mapping[str, tuple[PodTrials, ...]] = {}
    """By ratio gate, what its counters counted of both arms."""
    histograms: Mapping[str, tuple[PodHistogram, ...]] = {}
    """By quantile gate, the same."""
    totals: Mapping[str, tuple[PodTotal, ...]] = {}
    """By mean gate, the same."""
    measured: Mapping[str, Annotated[float, Field(allow_inf_nan=False)]] = {}
    """By query gate, what its query gave at the end."""
    dimensions: Mapping[ArmName, Mapping[Dimension, tuple[Score, ...]]] = {}
    """What a judge's scores were composed of: for people, not for the statistics."""
    missing: Mapping[str, str] = {}
    """Why something that was looked for is not here, by what it is: for people, not for the statistics."""

    @property
    def of_stable(self) -> Batch:
        """What it tells of stable alone: a past to bet on, and no evidence."""
        asked = {name: getattr(self, name) for name in ("ratios", "histograms", "totals")}
        kept = {
            name: {gate: tuple(pod for pod in pods if pod.arm is ArmName.STABLE) for gate, pods in found.items()}
            for name, found in asked.items()
        }
        arms = tuple(pod for pod in self.arms if pod.arm is ArmName.STABLE)
        return self.model_copy(update={"arms": arms, "events": None, "measured": {}, **kept})

    @model_validator(mode="after")
    def _pods_once(self) -> Batch:
        keys = [(pod.arm, pod.pod) for pod in self.arms]
        if len(set(keys)) != len(keys):
            raise ValueError("each pod of an arm once in a batch")
        return self
