"""Load of our own making: what is sent to whom, by which shape, and what became of it. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle, islice
from math import inf, isfinite
from pathlib import Path

from pydantic import Field

from gates.evidence.batch import ArmLoad
from gates.evidence.request_record import RequestRecord
from tidegate.core.errors import UsageError
from tidegate.core.model import Value


class LoadTotals(Value):
    """What became of all requests that ended."""

    requests: int
    failed: int
    """Not answered in full with a 2xx; includes `cut` and 4xx."""
    cut: int
    """Streams that began and did not end."""


def totals(records: Iterable[RequestRecord]) -> LoadTotals:
    """Count what ended, and how."""
    ended = list(records)
    failed, cut = sum(not record.ok for record in ended), sum(record.cut for record in ended)
    return LoadTotals(requests=len(ended), failed=failed, cut=cut)


CONCURRENCY_OF_A_PROCESS = 64
"""Streams at once that one process of a load follows."""
RATE_OF_A_PROCESS = 100.0
"""Requests a second of one process: beyond, tokens wait for the process and not for the engine, and are timed late."""


class LoadShape(StrEnum):
    """How much of its load a block brings at which time."""

    STEADY = "steady"
    """All of it, all the time."""
    RAMP = "ramp"
    """From a tenth to all of it."""
    SPIKE = "spike"
    """Three times as much in the middle third."""

    def at(self, part: float) -> float:
        """Of the load that was asked for, once so much of the block is over, 0 to 1."""
        if self is LoadShape.RAMP:
            return max(0.1, min(part, 1.0))
        return 3.0 if self is LoadShape.SPIKE and 1 / 3 <= part < 2 / 3 else 1.0

    @property
    def peak(self) -> float:
        """The most that it ever asks for."""
        return 3.0 if self is LoadShape.SPIKE else 1.0


class LoadRequest(Value):
    """One request to send."""

    prompt: str
    max_tokens: int = Field(ge=1)


class LoadOrder(Value):
    """Load on one address: a block of it, or that of users without end."""

    url: str
    """Without `/v1`."""
    model: str
    """What requests carry in their `model` field."""
    region: str
    role: str = ""
    """`stable` or `canary`, as records say it; empty where answers say who gave them."""
    version: str = ""
    """The same."""
    shape: LoadShape = LoadShape.STEADY
    seconds: float | None = Field(default=None, gt=0)
    """After that no request is sent; those under way may end. None for no end."""
    concurrency: int | None = Field(default=None, ge=1)
    """Requests in flight: who has an answer asks again."""
    rate: float | None = Field(default=None, gt=0)
    """Requests a second instead: arrivals are Poisson and wait for nobody, since users do not know that a server is
    slow before they ask."""
    seed: int
    """Of arrivals and of the order of requests: two orders with one seed send the same."""

    def part(self, index: int, of: int) -> LoadOrder | None:
        """What one of several processes does of it; None when there is nothing left for that one."""
        if self.rate is not None:
            return self.model_copy(update={"rate": self.rate / of, "seed": self.seed * of + index})
        whole, rest = divmod(self.concurrency or 0, of)
        mine = whole + (index < rest)
        return self.model_copy(update={"concurrency": mine, "seed": self.seed * of + index}) if mine else None


class LoadPlan(Value):
    """What a process of a load is told when it starts."""

    orders: tuple[LoadOrder, ...] = Field(min_length=1)
    """One block, or the users of every region."""
    requests: Path
    """File of JSON lines, each a `LoadRequest`."""
    records: Path
    """File to which a record per request is appended."""
    timeout_seconds: float = Field(default=120, gt=0)
    """Without a byte; the request then counts as failed. A block ends that long after its last request at most."""
    gate: Path | None = None
    """File that is locked until all processes of the load are ready; None where there is one."""
    parent: int
    """Process whose death ends this one."""


PROMPT_TOKENS = "vllm:request_prompt_tokens"
OUTPUT_TOKENS = "vllm:request_generation_tokens"
"""vLLM's histograms of finished requests."""
DRAWN = 1000
"""Requests with drawn lengths; a longer load begins again."""
TOKENS_OF_A_WORD = 1.3
"""On average, of English and the tokenizers of today's models."""


@dataclass(frozen=True)
class LengthHistogram:
    """How many requests were how long, in tokens."""

    edges: tuple[float, ...]
    """Upper ends, rising."""
    counts: tuple[float, ...]
    """One for each edge, not cumulated."""

    def draw(self, rng: random.Random) -> int:
        """A length: a bucket by its count, then any length within it, all alike."""
        (bucket,) = rng.choices(range(len(self.edges)), self.counts)
        low = self.edges[bucket - 1] if bucket else 0.0
        return max(round(rng.uniform(low, self.edges[bucket])), 1)


def histogram_in(text: str, name: str) -> LengthHistogram:
    """The histogram with that name, summed over its series; what exceeds the last finite edge counts as that long.

    Raises:
        UsageError: `text` has none, or it counted nothing, or it is no exposition of metrics.
    """
    # Not above: specs are read by commands that draw no lengths.
    from prometheus_client.parser import text_string_to_metric_families

    cumulated: dict[float, float] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in (each for each in family.samples if each.name == f"{name}_bucket"):
                edge = float(sample.labels["le"])
                cumulated[edge] = cumulated.get(edge, 0.0) + sample.value
    except ValueError as error:
        raise UsageError(
            f"the lengths are not metrics as an engine tells them: {error}",
            hint="keep what the engine answers at /metrics",
        ) from error
    edges = sorted(edge for edge in cumulated if isfinite(edge))
    if not edges or not max(cumulated.values()):
        raise UsageError(
            f"the lengths have no requests in {name}", hint="keep /metrics of an engine that has served users"
        )
    # More than the last edge is not known better; those requests must not be left out.
    totals = [cumulated[edge] for edge in edges[:-1]] + [cumulated.get(inf, cumulated[edges[-1]])]
    counts = [after - before for before, after in zip([0.0, *totals], totals, strict=False)]
    return LengthHistogram(edges=tuple(edges), counts=tuple(counts))


def plain_requests(prompts: Sequence[str], max_tokens: int) -> tuple[LoadRequest, ...]:
    """Each prompt once."""
    return tuple(LoadRequest(prompt=prompt, max_tokens=max_tokens) for prompt in prompts)


def requests_like(prompts: Sequence[str], metrics: str, *, seed: int = 0) -> tuple[LoadRequest, ...]:
    """Requests with the lengths of those that an engine counted: its prompts, and its answers.

    Words are those of `prompts`; so many that they make about as many tokens as were drawn. Each begins with other
    words, so that a cache of prefixes knows no more of them than of users' prompts.

    Raises:
        UsageError: as `histogram_in`.
    """
    lengths, answers = (histogram_in(metrics, name) for name in (PROMPT_TOKENS, OUTPUT_TOKENS))
    rng, words = random.Random(seed), [word for prompt in prompts for word in prompt.split()]

    def drawn() -> Iterator[LoadRequest]:
        for _ in range(DRAWN):
            count = max(round(lengths.draw(rng) / TOKENS_OF_A_WORD), 1)
            start = rng.randrange(len(words))
            said = islice(cycle(words), start, start + count)
            yield LoadRequest(prompt=" ".join(said), max_tokens=answers.draw(rng))

    return tuple(drawn())


def shuffled(requests: Sequence[LoadRequest], seed: int) -> Iterator[LoadRequest]:
    """All of them again and again, each time in another order, which follows from the seed."""
    rng, order = random.Random(seed), list(requests)
    while True:
        rng.shuffle(order)
        yield from order


def arm_load(records: Sequence[RequestRecord], *, engines: int, engine_hour: float | None) -> ArmLoad | None:
    """One block of one arm as evidence; None when no request ended."""
    if not records:
        return None
    began, ended = min(record.started for record in records), max(record.ended for record in records)
    return ArmLoad(
        requests=len(records),
        failed=sum(not record.ok for record in records),
        output_tokens=sum(record.output_tokens for record in records if record.ok),
        seconds=max(ended - began, 1e-3),
        engines=engines,
        engine_hour=engine_hour,
    )
