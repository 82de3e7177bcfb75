"""What engines do: tokens, queues, caches, speculation, GPUs."""

from __future__ import annotations

from slo.metrics import Metric
from slo.metrics.dcgm import GPU_UTILISATION
from slo.metrics.vllm import (
    ACCEPTED_TOKENS,
    DRAFT_TOKENS,
    GENERATION_TOKENS,
    KV_CACHE_USAGE,
    PREEMPTIONS,
    PREFIX_CACHE_HITS,
    PREFIX_CACHE_QUERIES,
    PROMPT_TOKENS,
    RUNNING,
    WAITING,
)
from slo.promql import ARM, Scope, some, summed

_MINUTE, _FIVE_MINUTES = Scope(window="1m"), Scope(window="5m")
_ARM = ", ".join(ARM)


def engine_rules() -> dict[str, str]:
    """Queries by the name that they are recorded under."""
    return {
        "generation_tokens:rate1m": _MINUTE.rate(GENERATION_TOKENS.name),
        "prompt_tokens:rate1m": _MINUTE.rate(PROMPT_TOKENS.name),
        "preemptions:rate1m": _MINUTE.rate(PREEMPTIONS.name),
        "queue_depth:sum": summed(WAITING.name, ARM),
        "running:sum": summed(RUNNING.name, ARM),
        "kv_cache_usage:max": f"max by ({_ARM}) ({KV_CACHE_USAGE.name})",
        "prefix_cache_hit_ratio:rate5m": _share(PREFIX_CACHE_HITS, PREFIX_CACHE_QUERIES),
        "spec_decode_acceptance:rate5m": _share(ACCEPTED_TOKENS, DRAFT_TOKENS),
        "gpu_utilisation:avg": f"avg by ({_ARM}) ({GPU_UTILISATION.name})",
        # One process may have several data-parallel ranks, each with series of its own.
        "engines:count": f"count by ({_ARM}) (group by ({_ARM}, instance) ({RUNNING.name}))",
    }


def _share(part: Metric, whole: Metric) -> str:
    return f"{_FIVE_MINUTES.rate(part.name)} / {some(_FIVE_MINUTES.rate(whole.name))}"
