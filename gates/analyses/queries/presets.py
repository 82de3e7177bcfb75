"""Common questions by name, for each kind: of vLLM's own metrics, and of signals of users.

vLLM's names and edges are those that the catalogue of `slo.metrics` lists. The names of users' signals are a
convention: a program that counts under others says so in the gate, which counts instead of the preset.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Presets = Mapping[str, Mapping[str, Any]]

RATIOS: Presets = {
    "vllm-queue-time": {
        "trials": "vllm:request_queue_time_seconds_count{{ARM}}",
        # The lowest edge of vLLM's histogram: what waits less is not told apart.
        "good": 'vllm:request_queue_time_seconds_bucket{le="0.3",{ARM}}',
        "max_increase": "5pp",
    },
    "vllm-truncated": {
        "trials": "vllm:request_success_total{{ARM}}",
        "events": 'vllm:request_success_total{finished_reason="length",{ARM}}',
        "max_increase": "5pp",
        "usual": 0.1,
    },
    "thumbs-down": {
        "trials": "chat_ratings_total{{ARM}}",
        "events": 'chat_ratings_total{rating="down",{ARM}}',
        "max_increase": "5pp",
        "per_request": 0.05,
        "usual": 0.1,
    },
    "retries": {
        "trials": "chat_requests_total{{ARM}}",
        "events": 'chat_requests_total{retry="true",{ARM}}',
        "max_increase": "2pp",
        "usual": 0.05,
    },
    "tool-call-failures": {
        "trials": "chat_tool_calls_total{{ARM}}",
        "events": 'chat_tool_calls_total{outcome="error",{ARM}}',
        "max_increase": "2pp",
        "per_request": 0.2,
        "usual": 0.05,
    },
}

QUANTILES: Presets = {
    # A request's own mean: one draw a request.
    "vllm-time-per-token": {
        "buckets": "vllm:request_time_per_output_token_seconds_bucket{{ARM}}",
        "unit": "seconds",
    },
    "vllm-decode-time": {
        "buckets": "vllm:request_decode_time_seconds_bucket{{ARM}}",
        "unit": "seconds",
        "max_increase": "50%",
    },
}

MEANS: Presets = {
    "vllm-output-tokens": {
        "sum": "vllm:request_generation_tokens_sum{{ARM}}",
        "count": "vllm:request_generation_tokens_count{{ARM}}",
        "unit": "tokens",
        "max_change": "20%",
    },
    "vllm-time-per-token": {
        "sum": "vllm:request_time_per_output_token_seconds_sum{{ARM}}",
        "count": "vllm:request_time_per_output_token_seconds_count{{ARM}}",
        "unit": "seconds",
        "max_change": "20%",
    },
}

GUARDS: Presets = {
    "vllm-kv-cache": {"query": "max(vllm:kv_cache_usage_perc{{ARM}})", "max": 0.95},
    "vllm-preemptions": {"query": "sum(rate(vllm:num_preemptions_total{{ARM}}[1m]))", "max": 0.1},
}
