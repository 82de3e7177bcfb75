"""What a person may get wrong in `fleet`, said with its place before anything is rendered."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from fakes.fleet import fleet_spec, read_fleet, region

from rollouts.manifests.spec import ArgoFleetSpec, FleetValidationContext
from tidegate.core.model import SpecConflict
from tidegate.core.spec import SpecError

LEAST = """\
kind: argo
namespace: serving
gateway: {name: users}
regions:
  eu-west-1: {entry: http://eu.example.com, prometheus: http://p.example.com}
"""


def odds(**changes: Any) -> dict[str, str]:
    """What is wrong, by place."""
    return said(fleet_spec(**changes).all_contradictions())


def said(found: Any) -> dict[str, str]:
    def line(odd: SpecConflict) -> str:
        return f"found {odd.found}; expected {odd.expected}"

    return {".".join(str(part) for part in odd.where): line(odd) for odd in found}


def around(**changes: Any) -> FleetValidationContext:
    required = {"name": "support-llm", "regions": ("eu-west-1",), "bake": timedelta(minutes=30), "accelerator": "cpu"}
    return FleetValidationContext.model_validate({**required, **changes})


def test_little_has_to_be_written() -> None:
    fleet = read_fleet(LEAST)
    assert (fleet.replicas_in("eu-west-1"), fleet.traffic) == (2, "gateway-api")
    assert fleet.previous is not None and fleet.autoscale is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("replica: 3", "fleet.yaml:6: replica: found an unknown key; expected replicas (the nearest known key)"),
        # To Argo Rollouts 0 means that an aborted canary keeps its GPUs for ever.
        ("canary: {after_abort: 0s}", "fleet.yaml:6: canary.after_abort: found 0ms; expected greater than 0"),
        ("warm_pool: {share: 0.15}", "fleet.yaml:6: warm_pool.share: found 0.15; expected a percent such as 20%"),
        ("network: {egress_to: [10.0.0.1/8]}", "found '10.0.0.1/8'; expected a block of addresses such as"),
    ],
)
def test_a_wrong_value_is_told_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_fleet(LEAST + text)
    assert problem in str(caught.value)


ALL_ODDS: list[tuple[dict[str, Any], dict[str, str]]] = [
    (
        {"autoscale": {"min_replicas": 4, "max_replicas": 3}, "replicas": 4},
        {
            "autoscale.min_replicas": "found 4; expected at most `max_replicas`, which is 3",
            "replicas": "found 4; expected 4 to 3, as `autoscale` says",
        },
    ),
    (
        {"autoscale": {"min_replicas": 1, "max_replicas": 3, "waiting": None, "kv_cache": None}},
        {"autoscale.waiting": "found no signal; expected at least one of waiting, kv_cache"},
    ),
    (
        {"replicas": 2, "unavailable": 2},
        {"unavailable": "found 2 of 2 engines; expected at most 1, or draining nodes takes them all"},
    ),
    # Two Rollouts of one name in one namespace would fight for the same pods.
    (
        {"regions": {"a": region("a"), "b": region("b", context="a")}},
        {
            "regions.b.context": "found the cluster of a, where the same namespace has its Rollout already; "
            "expected a context of its own for each region"
        },
    ),
    # A canary's own address that is the stable's proves nothing about the canary.
    *(
        (
            {"regions": {"a": region("a", canary_url=url)}},
            {
                "regions.a.canary_url": f"found {url or 'nothing'}; expected stable_url and canary_url, "
                "each an address at which one of the two answers; or neither"
            },
        )
        for url in ("https://stable.a.example.com", None)
    ),
    (
        {"regions": {"a": region("a", entry="http://[::1]:80")}, "gateway": {"name": "users"}},
        {"regions.a.entry": "found http://[::1]:80; expected an address with a name, or gateway.hosts"},
    ),
    (
        {"nodes": {"karpenter": {"node_class": "gpus", "most_gpus": 8}, "cloud": "gcp"}},
        {
            "nodes.gpu_labels": "found gpu-operator with a node pool; expected karpenter, which labels its nodes",
            "nodes.karpenter": "found an EC2NodeClass on gcp; expected cloud: aws, or node pools of GKE's own",
        },
    ),
    (
        {"pod": {"memory": "16Gi", "shared_memory": "16384Mi"}},
        {"pod.shared_memory": "found 16384Mi; expected less than `memory`, which is 16Gi and includes it"},
    ),
    (
        {"pod": {"drain": timedelta(seconds=5)}},
        {"pod.linger": "found 5s; expected less than `drain`, which is 5s"},
    ),
]


@pytest.mark.parametrize(("changes", "expected"), ALL_ODDS)
def test_what_would_be_refused_or_silently_do_harm_is_told(changes: dict[str, Any], expected: dict[str, str]) -> None:
    assert odds(**changes) == expected


@pytest.mark.parametrize(
    ("fleet", "delivery", "expected"),
    [
        (
            {"previous": {"keep": timedelta(minutes=30)}},
            {},
            {"previous.keep": "found 30m: gone before the bake ends; expected more than `regions.bake`, which is 30m"},
        ),
        (
            {"regions": {"mars": region("mars")}},
            {},
            {
                "regions.mars": "found a region of no wave; expected one of eu-west-1",
                "regions": "found no eu-west-1; expected every region of every wave",
            },
        ),
        (
            {"nodes": {"gpu_labels": "gke"}},
            {"accelerator": "nvidia-a10g"},
            {
                "nodes.gpu_labels": "found gke, which never labels a node with nvidia-a10g; "
                "expected gpu-operator or karpenter"
            },
        ),
        # Nothing would bound what such a pool buys.
        (
            {"nodes": {"gpu_labels": "karpenter", "karpenter": {"node_class": "gpus", "most_gpus": 8}}},
            {},
            {"nodes.karpenter": "found a pool of nodes with GPUs for a CPU; expected an `engine.accelerator`"},
        ),
        ({}, {"name": "n" * 57}, {"": "found a delivery whose name has 57 characters; expected at most 56"}),
    ],
)
def test_what_does_not_fit_the_rest_of_the_delivery_is_told(
    fleet: dict[str, Any], delivery: dict[str, Any], expected: dict[str, str]
) -> None:
    assert said(fleet_spec(**fleet).conflicts_with(around(**delivery))) == expected


def test_the_spec_is_written_as_it_is_read() -> None:
    fleet = read_fleet(LEAST)
    assert ArgoFleetSpec.model_validate_json(fleet.model_dump_json()) == fleet
