"""More accelerators than a node has: refused with the reason, and with what would serve them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.spec.delivery import Delivery
from tidegate.core.spec import SpecError, parse_spec

EXAMPLE = (Path(__file__).parents[3] / "examples/kubernetes/delivery.yaml").read_text()


def delivery(accelerator: str, tensor: int, pipeline: int, nodes: str = "") -> Delivery:
    text = EXAMPLE.replace("  nodes: {gpu_labels: karpenter, capacity: spot, cloud: aws, karpenter: ", "  #")
    args = f"dtype: bfloat16, tensor-parallel-size: {tensor}, pipeline-parallel-size: {pipeline}}}"
    text = text.replace("dtype: bfloat16}", args)
    text = text.replace(
        "accelerator: nvidia-l40s", f"accelerator: {accelerator}\n  accelerator_count: {tensor * pipeline}"
    )
    return parse_spec(text.replace("  pod:", f"{nodes}  pod:"), Delivery, file="delivery.yaml")


def refusal(*asked: str | int) -> str:
    with pytest.raises(SpecError) as error:
        delivery(*asked)  # type: ignore[arg-type]
    return str(error.value)


def test_one_pod_has_no_more_than_a_node() -> None:
    assert refusal("nvidia-h100-80gb", 8, 2) == (
        "delivery.yaml:14: engine.accelerator_count: found 16 of nvidia-h100-80gb in one pod; expected at most 8, as "
        "the largest nodes of clouds have: an engine is one pod (docs/concepts/served.md); "
        "`fleet.nodes.accelerators`, where yours have more"
    )


def test_all_of_one_node_is() -> None:
    assert delivery("nvidia-h100-80gb", 8, 1).engine.accelerator_count == 8
    assert delivery("nvidia-a100-40gb", 8, 2).engine.accelerator_count == 16


def test_the_spec_says_what_a_node_has() -> None:
    assert delivery("nvidia-l4", 5, 2, "  nodes: {accelerators: 10}\n").engine.accelerator_count == 10
    told = refusal("nvidia-h100-80gb", 4, 1, "  nodes: {accelerators: 2}\n")
    assert "found 4 of nvidia-h100-80gb in one pod; expected at most 2, as `fleet.nodes.accelerators` says:" in told
