"""SLOs in words, for people who are woken by them."""

from __future__ import annotations

from slo.durations import prometheus_duration
from slo.spec import SloSpec
from tidegate.core.quantities import format_duration


def promise(item: SloSpec) -> str:
    """What users may count on: `99.9% of requests get an answer, over 30d`."""
    return f"{item.objective:g}% of {_good(item)}, over {prometheus_duration(item.window)}"


def breach(item: SloSpec) -> str:
    """What is wrong when the promise is broken, as the end of a sentence on a region."""
    return _BREACHES[item.kind]


def _good(item: SloSpec) -> str:
    if item.tokens_per_second:
        return f"requests get {item.tokens_per_second.at_least:g} output tokens a second or more"
    if item.kv_cache:
        return f"the time the KV cache is at most {item.kv_cache.below:.0%} full"
    if item.quality:
        return f"the time the judge's score '{item.quality.dimension}' is {item.quality.at_least:g} or more"
    within = item.ttft or item.itl or item.e2e or item.queue_time
    return _GOOD[item.kind].format(within and format_duration(within.below))


_GOOD = {
    "errors": "requests get a whole answer and no server error",
    "ttft": "requests get their first token within {}",
    "itl": "output tokens follow the one before within {}",
    "e2e": "requests get their last token within {}",
    "queue_time": "requests wait at most {} in the engine's queue",
}

_BREACHES = {
    "errors": "requests fail",
    "ttft": "first tokens come late",
    "itl": "tokens follow too slowly",
    "e2e": "answers take too long",
    "queue_time": "requests wait too long in the queue",
    "tokens_per_second": "requests get too few tokens a second",
    "kv_cache": "the KV cache is too full",
    "quality": "the judge's score is too low",
}
