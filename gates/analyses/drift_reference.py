"""Features of requests: frozen into the bins of a reference before the first one is judged, and every later request
counted in these. They are numbers and names of requests and answers, never their words.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import numpy as np

from gates.evidence.batch import Batch, DriftCounts
from gates.evidence.request_record import RequestRecord
from gates.model import ArmKey, NoData
from gates.ports import EvidenceSource, UserRequests
from tidegate.core.model import Value


class Feature(StrEnum):
    """One thing that can drift; the first three are of prompts, the others of answers."""

    PROMPT_LENGTH = "prompt_length"
    """In characters: tokens would change with the tokenizer of the version that counts them."""
    LANGUAGE = "language"
    TOPIC = "topic"
    LENGTH = "length"
    """In tokens, as the engine counted."""
    ENTROPY = "entropy"
    """Of the next token, mean over the answer, in nats."""
    FINISH_REASON = "finish_reason"
    REFUSAL = "refusal"
    """Whether the answer declines in words."""


NUMERIC = frozenset({Feature.PROMPT_LENGTH, Feature.LENGTH, Feature.ENTROPY})
"""Those with an order; the others are names."""
ANSWER_NUMBERS = NUMERIC - {Feature.PROMPT_LENGTH}
PROMPTS = frozenset({Feature.PROMPT_LENGTH, Feature.LANGUAGE, Feature.TOPIC})
"""Those of what users ask."""


class Bins(Value):
    """Where the values of one feature are counted, and how many the reference had there."""

    edges: tuple[float, ...] = ()
    """Of numbers: upper ends, rising; a value belongs to the first edge that it does not exceed."""
    names: tuple[str, ...] = ()
    """Of names: each with a bin; the last bin is for any other."""
    reference: tuple[int, ...]

    def place(self, value: float | str) -> int:
        """The index of the bin of `value`."""
        if isinstance(value, str):
            return self.names.index(value) if value in self.names else len(self.names)
        return bisect_left(self.edges, value)


class DriftReference(Value):
    """The reference window before the delivery, frozen before the first request is judged."""

    bins: Mapping[Feature, Bins]
    """Of every feature that the settings name and that enough requests had."""


Features = Mapping[Feature, float | str]
"""Of one request. What is not known is not in here: it is neither 0 nor a category of its own."""


MOST_NAMES = 30
"""Of one feature that have a bin of their own; rarer ones share the last."""

Counts = Mapping[Feature, tuple[int, ...]]
"""Requests in each bin of each feature; a request without a feature is in none of its bins."""


def features_of_record(record: RequestRecord) -> Features:
    """What a line of the load's records says; an answer that did not end well has no features."""
    known: dict[Feature, float | str | None] = {
        Feature.PROMPT_LENGTH: record.prompt_characters,
        Feature.LANGUAGE: record.prompt_language or None,
        Feature.TOPIC: _name(record.prompt_topic),
    }
    if record.ok:
        known |= {
            Feature.LENGTH: record.output_tokens,
            Feature.ENTROPY: record.entropy,
            Feature.FINISH_REASON: record.finish_reason or None,
            Feature.REFUSAL: _name(record.refusal),
        }
    return {
        feature: value
        for feature, value in known.items()
        if value is not None and (isinstance(value, str) or math.isfinite(value))
    }


def _name(value: int | bool | None) -> str | None:
    return None if value is None else str(value).lower()


def freeze_reference(
    features: Iterable[Feature], requests: Iterable[Features], *, bins: int, least: int
) -> DriftReference | NoData:
    """Make bins of these features, `bins` of each number; those that fewer than `least` requests have get none."""
    sampled, found = list(requests), {}
    for feature in features:
        values = [request[feature] for request in sampled if feature in request]
        if len(values) >= least:
            found[feature] = freeze(feature, values, bins)
    if not found:
        return NoData(reason=f"the reference has {len(sampled)} requests; at least {least} are needed")
    return DriftReference(bins=found)


def freeze(feature: Feature, values: Sequence[float | str], bins: int) -> Bins:
    """Bins for one feature: names by how often they come, numbers by quantiles."""
    if feature in NUMERIC:
        empty = Bins(edges=_edges([float(value) for value in values], bins), reference=())
        size = len(empty.edges) + 1
    else:
        common = Counter(str(value) for value in values).most_common(MOST_NAMES)
        empty = Bins(names=tuple(sorted(name for name, _ in common)), reference=())
        size = len(empty.names) + 1
    return empty.model_copy(update={"reference": _count(empty, size, values)})


def count_requests(reference: DriftReference, requests: Iterable[Features]) -> Counts:
    """Count requests in the frozen bins; features without bins are left out."""
    sampled = list(requests)
    return {
        feature: _count(bins, len(bins.reference), [request[feature] for request in sampled if feature in request])
        for feature, bins in reference.bins.items()
    }


def count_records(
    reference: DriftReference, stable: Iterable[RequestRecord], canary: Iterable[RequestRecord]
) -> DriftCounts:
    """Count what users of each arm asked and got."""
    stable_requests, canary_requests = ([features_of_record(record) for record in arm] for arm in (stable, canary))
    return DriftCounts(
        stable=count_requests(reference, stable_requests),
        canary=count_requests(reference, canary_requests),
        stable_totals=_totals(reference, stable_requests),
        canary_totals=_totals(reference, canary_requests),
    )


def _totals(reference: DriftReference, requests: Sequence[Features]) -> Mapping[Feature, float]:
    """Sums of the answers' numbers; those without bins are left out, as they are not counted."""
    return {
        feature: sum(float(request[feature]) for request in requests if feature in request)
        for feature in reference.bins
        if feature in ANSWER_NUMBERS
    }


def _edges(values: Sequence[float], bins: int) -> tuple[float, ...]:
    ranks = [number / bins for number in range(1, bins)]
    edges = {float(edge) for edge in np.quantile(values, ranks, method="inverted_cdf")}
    often = Counter(values)
    # A value that fills a bin by itself, such as the token limit, gets one: what is below must not hide in it.
    atoms = {math.nextafter(edge, -math.inf) for edge in edges if often[edge] * bins >= len(values)}
    return tuple(sorted(edges | atoms))


def _count(bins: Bins, size: int, values: Iterable[float | str]) -> tuple[int, ...]:
    counts = [0] * size
    for value in values:
        counts[bins.place(value)] += 1
    return tuple(counts)


class WithDrift:
    """Counts what users of each arm asked and got, in bins that were frozen before."""

    def __init__(self, source: EvidenceSource, requests: UserRequests, reference: DriftReference) -> None:
        """`requests` are those of the users whose evidence `source` is."""
        self._source, self._requests, self._reference = source, requests, reference

    @property
    def settles_within(self) -> timedelta:
        """As the source below."""
        return self._source.settles_within

    def batch(self, stable: ArmKey, canary: ArmKey, since: datetime, until: datetime) -> Batch:
        """As the source below."""
        batch = self._source.batch(stable, canary, since, until)
        arms = [self._requests.window(arm, since, until) for arm in (stable, canary)]
        return batch.model_copy(update={"drift": count_records(self._reference, *arms)})
