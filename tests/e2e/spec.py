"""The spec that scenarios deliver by: margins so wide that noise decides nothing, and few requests do.

A pass needs evidence of 20:1, a fail much more: what a canary of this spec is refused for is plain to see.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from engine_images.adapters.environment import find_engine_environment

MODEL = "tiny"
REGION = "eu-west-1"
PROMPTS = tuple(f"How much is {number} and {number + 1}?" for number in range(1, 17))
"""Enough for proof that a version which answers all of them wrongly is worse."""


TRAFFIC: Mapping[str, Any] = {"requests_per_second": 6, "prompts": "prompts.txt", "max_tokens": 4}
BURN: Mapping[str, Any] = {"short": "10s", "long": "2m", "factor": 1.9}
GATES: Mapping[str, Any] = {
    "budget": {"poll_interval": "6s"},
    "latency": {"quantile": 0.5, "max_increase": "1000%", "tolerance": "300%", "min_requests": 8},
    "errors": {"max_increase": "60pp", "tolerance": "20pp", "min_requests": 8},
    "quality": {"scorer": "exact", "max_drop": 0.5, "min_prompts": len(PROMPTS)},
    "agreement": {"min_similarity": 0.4, "min_coverage": 0.5, "min_pairs": 8},
    "burn_rate": {"slo": "ttft", "min_events": 8, "fast": BURN, "slow": BURN},
}
SLOS: Sequence[Mapping[str, Any]] = ({"name": "ttft", "objective": 50, "ttft": {"below": "200ms"}},)
"""Between two edges of vLLM's own buckets: engines are started with one more."""


def write_spec(folder: Path, *, canary_lasts: str = "0s", **changes: Any) -> Path:
    """Write `folder/delivery.yaml` and what it names; `changes` replace whole keys at its top."""
    golden = folder / "golden.jsonl"
    (folder / "prompts.txt").write_text("\n".join(PROMPTS) + "\n", encoding="utf-8")
    spec = {
        "apiVersion": "tidegate/v1",
        "kind": "Delivery",
        "metadata": {"name": MODEL},
        "model": {"name": MODEL},
        "engine": _engine(),
        "gates": GATES,
        "slos": SLOS,
        "stages": _stages(canary_lasts, golden if golden.exists() else None),
        "regions": {"waves": [[REGION]], "bake": "1s"},
        "traffic": TRAFFIC,
    }
    path = folder / "delivery.yaml"
    path.write_text(yaml.safe_dump(spec | changes, sort_keys=False), encoding="utf-8")
    return path


def write_golden(folder: Path, answers: Mapping[str, str]) -> None:
    """What the champion answers becomes what a version is expected to answer."""
    lines = (json.dumps({"prompt": prompt, "expected": answer}) for prompt, answer in answers.items())
    (folder / "golden.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _engine() -> dict[str, Any]:
    return {
        "vllm": {
            "version": find_engine_environment().vllm,
            "args": {"max-model-len": 512, "dtype": "float32", "kv-cache-memory-bytes": 32 << 20},
        },
        "compile": {"mode": "none"},
    }


def _stages(canary_lasts: str, golden: Path | None) -> Sequence[Mapping[str, Any]]:
    offline = [{"offline": {"dataset": golden.name}}] if golden else []
    return [
        *offline,
        {"shadow": {"pairs_per_second": 4, "at_least": "0s", "within": "10m", "gates": ["latency", "agreement"]}},
        {
            "canary": {
                "weights": [50],
                "at_least": canary_lasts,
                "within": "20m",
                "gates": ["latency", "errors", "burn_rate"],
            }
        },
    ]
