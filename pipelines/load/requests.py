"""The requests of a load: prompts as they are, or with the lengths that an engine of production counted."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from math import inf, isfinite

from pipelines.load.model import LoadRequest
from tidegate.core.errors import UsageError

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
    try:
        cumulated = _cumulated(text, name)
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


def _cumulated(text: str, name: str) -> Mapping[float, float]:
    # Specs are read by commands that draw no lengths.
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[float, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == f"{name}_bucket":
                edge = float(sample.labels["le"])
                found[edge] = found.get(edge, 0.0) + sample.value
    return found


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
