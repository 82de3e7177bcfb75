"""`engine sweep` on real vLLM engines: what is measured is kept, and judged again by another budget."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest
from fakes.terminal import Tidegate

from tidegate.testing import write_tiny_model

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900), pytest.mark.long]

SPEC = """
apiVersion: tidegate/v1
kind: Delivery
metadata: {name: NAME}
model: {name: NAME}
engine:
  vllm: {version: 0.32.0, args: {max-model-len: 256, dtype: float32, kv-cache-memory-bytes: 16777216}}
  compile: {mode: none}
gates: {latency: {}, errors: {}}
stages:
  - canary: {weights: [50], gates: [latency, errors]}
regions: {waves: [[here]]}
fleet: {kind: local}
traffic: {prompts: prompts.txt, requests_per_second: 5}
"""


def test_no_load_is_asked_for_twice(tidegate: Tidegate, tmp_path: Path, name: str) -> None:
    (tmp_path / "prompts.txt").write_text("".join(f"Tell me about {topic}.\n" for topic in ["rain", "bread", "maps"]))
    (tmp_path / "delivery.yaml").write_text(SPEC.replace("NAME", name))
    model = write_tiny_model(tmp_path / "export", seed=1)
    assert tidegate("model", "register", name, str(model), "--alias", "champion").code == 0
    load = ("--block", "5s", "--max-tokens", "8", "-o", "json")

    # Nobody could miss a minute; two at once are measured as well as one.
    wide = tidegate("engine", "sweep", f"models:/{name}@champion", "--itl-p95", "60s", "--to", "2", *load)
    assert wide.code == 0, wide.err
    one, two = wide.json["points"]
    assert (one["max_num_seqs"], two["max_num_seqs"], one["keeps"], two["keeps"]) == (1, 2, "yes", "yes")
    best = max(wide.json["points"], key=lambda point: point["tokens_per_second"]["median"])
    assert wide.json["proposal"] == best["max_num_seqs"]
    assert all(point["blocks"] == 6 and point["requests"] > 6 and not point["failed"] for point in (one, two))
    kept = Path(wide.json["measurements"])
    assert [json.loads(line)["max_num_seqs"] for line in kept.read_text().splitlines()] == [1] * 6 + [2] * 6
    assert not [each for each in psutil.Process().children(recursive=True) if "vllm" in " ".join(each.cmdline())]

    # No engine writes a token in a hundredth of a millisecond.
    narrow = tidegate("engine", "sweep", f"models:/{name}@champion", "--itl-p95", "0.01ms", "--to", "2", *load)
    assert (narrow.code, narrow.json["proposal"], len(narrow.json["points"])) == (1, None, 1)
    assert narrow.json["points"][0]["requests"] == one["requests"]
    assert "preparing" not in narrow.err
    assert len(kept.read_text().splitlines()) == 12
