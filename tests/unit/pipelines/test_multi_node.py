"""Engines over several nodes: what a spec may say of them, what their pods get, and what a plan tells."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.clusters.admission import Refusing
from fakes.delivery.world import a_version

from pipelines.plan.engines import record_of
from pipelines.plan.prebuilt import engine_notes, image_launch
from pipelines.plan.region_objects import engine_counts, region_objects, rendering
from pipelines.spec.delivery import Delivery
from rollouts.manifests.conventions import RenderPart
from rollouts.manifests.manifest import Release
from rollouts.manifests.schema import problems_in
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import Engine
from tidegate.core.model import Json
from tidegate.core.spec import SpecError, parse_spec

pytestmark = pytest.mark.long

EXAMPLE = (Path(__file__).parents[3] / "examples/kubernetes/delivery.yaml").read_text()
IMAGE = "vllm/vllm-openai@sha256:" + "7" * 64
DRIVER = "system:serviceaccount:{}:support-llm-driver"


def spec_of(fleet: dict[str, Any] | None = None, engine: dict[str, Any] | None = None, **args: Any) -> Delivery:
    """Sixteen H100 for each engine, eight in each of two nodes."""
    said = yaml.safe_load(EXAMPLE)
    for unserved in ("autoscale", "warm_pool", "nodes", "canary"):
        said["fleet"].pop(unserved, None)
    said["fleet"] |= {"multi_node": {"size": 2}, **(fleet or {})}
    args = {"max-model-len": 8192, "tensor-parallel-size": 8, "pipeline-parallel-size": 2, **args}
    said["engine"] = {
        "vllm": {"version": "0.32.0", "args": args},
        "accelerator": "nvidia-h100-80gb",
        "accelerator_count": 16,
        "image": IMAGE,
        "weights": {"claim": "models", "path": "support-llm/{version}"},
        **(engine or {}),
    }
    return parse_spec(yaml.safe_dump(said), Delivery, file="delivery.yaml")


def refused(fleet: dict[str, Any] | None = None, engine: dict[str, Any] | None = None, **args: Any) -> str:
    with pytest.raises(SpecError) as caught:
        spec_of(fleet, engine, **args)
    return str(caught.value)


def clusters(spec: Delivery) -> ArgoFleetSpec:
    assert isinstance(spec.fleet, ArgoFleetSpec)
    return spec.fleet


def engine_of(spec: Delivery) -> Engine:
    launch = image_launch(spec, clusters(spec), spec.engine, version="7", digest="d" * 64)
    return Engine(version="7", digest="d" * 64, model=spec.metadata.name, image=IMAGE, launch=launch)


def objects(spec: Delivery, *parts: RenderPart) -> tuple[Json, ...]:
    region, engine = spec.regions.names[0], engine_of(spec)
    release = Release(
        delivery=spec.metadata.name,
        region=region,
        version=engine.version,
        digest=engine.digest,
        image=engine.image,
        launch=engine.launch,
        accelerator=str(spec.engine.accelerator),
        accelerators=spec.engine.accelerator_count,
    )
    return region_objects(spec, clusters(spec), release, parts=parts or tuple(RenderPart)).objects


def the_set(spec: Delivery) -> Json:
    return rendering(spec, clusters(spec), spec.regions.names[0])(engine_of(spec))[-1]


def test_accelerators_are_divided_among_the_nodes() -> None:
    spec = spec_of()
    template = the_set(spec)["spec"]["leaderWorkerTemplate"]
    assert template["size"] == 2
    for part in ("leaderTemplate", "workerTemplate"):
        (container,) = template[part]["spec"]["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"


def test_every_pod_is_told_its_place_and_the_leader_alone_serves() -> None:
    template = the_set(spec_of())["spec"]["leaderWorkerTemplate"]
    (leader,), (worker,) = (template[part]["spec"]["containers"] for part in ("leaderTemplate", "workerTemplate"))
    own = ["--distributed-executor-backend", "mp", "--nnodes", "2", "--node-rank"]
    address = ["--master-addr", "$(LWS_LEADER_ADDRESS)"]
    assert leader["args"][-8:] == [*own, "0", *address]
    assert worker["args"][-9:] == [*own, "$(LWS_WORKER_INDEX)", *address, "--headless"]
    assert "readinessProbe" in leader
    assert not {"ports", "startupProbe", "readinessProbe", "livenessProbe"} & worker.keys()


def test_a_worker_stays_as_long_as_its_leader_may_answer() -> None:
    template = the_set(spec_of({"pod": {"drain": "3m"}}))["spec"]["leaderWorkerTemplate"]
    worker = template["workerTemplate"]["spec"]
    assert worker["containers"][0]["lifecycle"] == {"preStop": {"sleep": {"seconds": 180}}}
    assert worker["terminationGracePeriodSeconds"] == 210


def test_pods_of_a_group_may_talk_and_nobody_else_may_with_them() -> None:
    policies = [each for each in objects(spec_of(), RenderPart.SETUP) if each["kind"] == "NetworkPolicy"]
    (policy,) = (each for each in policies if each["metadata"]["name"] == "support-llm")
    own = {"podSelector": {"matchLabels": {"tidegate.dev/delivery": "support-llm"}}}
    assert {"from": [own]} in policy["spec"]["ingress"]
    assert {"to": [own]} in policy["spec"]["egress"]


def test_draining_a_node_takes_one_engine_at_a_time() -> None:
    budgets = {}
    for unavailable in (1, 2):
        spec = spec_of({"replicas": 4, "unavailable": unavailable})
        (budget,) = (each for each in objects(spec) if each["kind"] == "PodDisruptionBudget")
        budgets[unavailable] = budget["spec"]["maxUnavailable"]
    assert budgets == {1: 1, 2: 3}


def test_engines_are_scraped_by_the_service_that_leads_to_them() -> None:
    kinds = [each["kind"] for each in objects(spec_of(), RenderPart.SERVING)]
    (monitor,) = (each for each in objects(spec_of()) if each["kind"] == "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    role = {
        "sourceLabels": ["__meta_kubernetes_service_label_tidegate_dev_role"],
        "regex": "(.+)",
        "targetLabel": "role",
    }
    assert role in endpoint["relabelings"]
    assert not {"Rollout", "AnalysisTemplate"} & set(kinds)
    assert kinds[-1] == "LeaderWorkerSet"


def test_all_of_it_is_valid_and_let_in_by_its_own_policies() -> None:
    spec = spec_of()
    everything = objects(spec)
    assert {each["metadata"]["name"]: found for each in everything if (found := problems_in(each))} == {}
    policies = Refusing([each for each in everything if "Admission" in each["kind"]])
    user = DRIVER.format(clusters(spec).namespace)
    for each in objects(spec, RenderPart.SERVING):
        assert policies.refusals(each, user=user) == [], each["kind"]


@pytest.mark.parametrize("part", ["leaderTemplate", "workerTemplate"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hostNetwork", True),
        ("serviceAccountName", "default"),
        ("volumes", [{"name": "host", "hostPath": {"path": "/"}}]),
        ("containers", [{"name": "engine", "image": "busybox"}]),
    ],
)
def test_its_policies_hold_leaders_and_workers(part: str, field: str, value: object) -> None:
    spec = spec_of()
    policies = Refusing(list(objects(spec, RenderPart.ADMISSION)))
    wrong = copy.deepcopy(the_set(spec))
    wrong["spec"]["leaderWorkerTemplate"][part]["spec"][field] = value
    assert policies.refusals(wrong, user=DRIVER.format(clusters(spec).namespace)) != []


def test_a_set_of_another_name_or_delivery_is_not_tidegates_to_write() -> None:
    spec = spec_of()
    policies = Refusing(list(objects(spec, RenderPart.ADMISSION)))
    other = copy.deepcopy(the_set(spec))
    other["metadata"]["name"] = "another-model-1"
    assert policies.refusals(other, user=DRIVER.format(clusters(spec).namespace)) == [
        "tidegate writes objects that are named after support-llm"
    ]


@pytest.mark.parametrize(
    ("fleet", "engine", "args", "told"),
    [
        ({}, {"image": None, "weights": None}, {}, "fleet.multi_node: found several nodes for an engine that is built"),
        (
            {"multi_node": {"size": 3}},
            {},
            {},
            "engine.accelerator_count: found 16 for 3 nodes; expected a multiple of `fleet.multi_node.size`",
        ),
        ({}, {"accelerator_count": 32}, {"pipeline-parallel-size": 4}, "or `fleet.multi_node.size: 4`"),
        ({}, {}, {"nnodes": 2}, "engine.vllm.args.nnodes: found nnodes with `fleet.multi_node`"),
        (
            {},
            {},
            {"pipeline-parallel-size": 1, "data-parallel-size": 2},
            "engine.vllm.args.data-parallel-size: found more than 1 with `fleet.multi_node`",
        ),
        ({"warm_pool": {"share": "50%"}}, {}, {}, "fleet.warm_pool: found a warm pool with `multi_node`"),
        ({"canary": {"replicas": 1}}, {}, {}, "fleet.canary.replicas: found a smaller canary with `multi_node`"),
        ({"canary": {"dynamic_stable": True}, "previous": None}, {}, {}, "found a stable that shrinks"),
        (
            {"patches": [{"target": {"kind": "Rollout"}, "json6902": [{"op": "remove", "path": "/spec/replicas"}]}]},
            {},
            {},
            "fleet.patches[0].target.kind: found a patch of Rollout with `multi_node`",
        ),
        ({"autoscale": {"min_replicas": 1, "max_replicas": 9}}, {}, {}, "fleet.autoscale: found an autoscaler with"),
    ],
)
def test_what_is_not_served_is_refused_in_one_line(
    fleet: dict[str, Any], engine: dict[str, Any], args: dict[str, Any], told: str
) -> None:
    assert told in refused(fleet, engine, **args)


def test_the_plan_tells_what_a_group_is_and_how_many_nodes_it_takes() -> None:
    spec = spec_of({"replicas": 2, "regions": _two_engines()})
    (note,) = (each for each in engine_notes(spec) if "LeaderWorkerSet" in each)
    assert note.startswith("each engine is a group of 2 pods (LeaderWorkerSet)")
    count = engine_counts(spec)[0]
    assert (count.serving, count.first, count.most, count.warm, count.pods) == (2, 2, 2, 2, 2)


def _two_engines() -> dict[str, Any]:
    regions: dict[str, Any] = yaml.safe_load(EXAMPLE)["fleet"]["regions"]
    return {name: {key: value for key, value in said.items() if key != "replicas"} for name, said in regions.items()}


def test_another_number_of_nodes_is_another_engine() -> None:
    two = record_of(spec_of(), a_version("7"), {})
    four = record_of(spec_of({"multi_node": {"size": 4}}), a_version("7"), {})
    assert two.fingerprint != four.fingerprint
    one = record_of(spec_of({"multi_node": None, "nodes": {"accelerators": 16}}), a_version("7"), {})
    assert one.fingerprint != two.fingerprint
