"""Drafts of specs from recorded objects: each loads, says where its values are from, and has no secret in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.clusters.existing import NAMESPACE, existing, recorded
from fakes.kube.api import Api
from fakes.kube.server import client_of

from pipelines.draft.delivery import draft_delivery
from pipelines.draft.model import Draft, DraftNoteKind
from pipelines.draft.next_steps import next_steps
from pipelines.draft.text import draft_text
from pipelines.spec.delivery import Delivery
from pipelines.spec.policy import not_for_a_spec
from pipelines.spec.trust import SpecTrust
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.survey import ServingSurvey, survey
from tidegate.core.errors import UsageError
from tidegate.core.spec import load_spec

pytestmark = pytest.mark.long

CASES = ("helm_rollout", "workload_ref", "istio", "sidecars", "scaled", "hpa")


async def surveyed(case: str, *, context: str = "prod-eu-west-1") -> ServingSurvey:
    name = recorded(case)[0]["metadata"]["name"]
    return await survey(client_of(Api(existing(case))), name, context=context, namespace=NAMESPACE)


async def drafted(case: str) -> Draft:
    return draft_delivery(await surveyed(case))


def loaded(draft: Draft, folder: Path) -> Delivery:
    path = folder / "delivery.yaml"
    path.write_text(draft_text(draft), encoding="utf-8")
    return load_spec(path, Delivery, also=lambda spec: not_for_a_spec(spec, SpecTrust()))


def fleet_of(spec: Delivery) -> ArgoFleetSpec:
    assert isinstance(spec.fleet, ArgoFleetSpec)
    return spec.fleet


def told(draft: Draft, kind: DraftNoteKind) -> dict[str, str]:
    return {each.subject: f"{each.what}; {each.action}" for each in draft.notes if each.kind is kind}


@pytest.mark.parametrize("case", CASES)
async def test_it_loads_as_it_is_and_holds_no_secret(case: str, tmp_path: Path) -> None:
    draft = await drafted(case)
    assert loaded(draft, tmp_path).stages
    assert "not-for-files" not in draft_text(draft) + str(draft)


@pytest.mark.parametrize("case", CASES)
async def test_what_is_to_be_decided_is_marked_where_it_stands(case: str) -> None:
    draft = await drafted(case)
    decided = [each for each in draft.notes if each.kind is DraftNoteKind.DECIDE]
    assert all(f"TODO: {each.what}" in draft.comments[tuple(each.subject.split("."))] for each in decided)
    assert {"model", "gates.latency", "gates.errors"} <= {each.subject for each in decided}


@pytest.mark.parametrize("case", CASES)
async def test_what_does_not_fit_says_what_to_do(case: str) -> None:
    draft = await drafted(case)
    assert [each for each in draft.notes if each.kind is DraftNoteKind.UNSUPPORTED and not each.action] == []


async def test_a_rollout_of_a_chart(tmp_path: Path) -> None:
    draft = await drafted("helm_rollout")
    spec = loaded(draft, tmp_path)
    engine, fleet = spec.engine, fleet_of(spec)
    assert spec.metadata.name == "support"  # what requests call the model
    assert engine.image
    assert engine.image.reference == "vllm/vllm-openai@sha256:" + "1" * 64
    assert engine.weights
    assert (engine.weights.claim, engine.weights.path) == ("models", "support/{version}")
    assert engine.vllm
    assert engine.vllm.args["max-model-len"] == 8192
    assert (engine.accelerator, engine.accelerator_count) == ("nvidia-l40s", 2)
    assert spec.canary
    assert spec.canary.weights == (10, 40)
    assert (fleet.namespace, fleet.replicas, fleet.gateway.name, fleet.gateway.listener) == (
        *(NAMESPACE, 4),
        *("users", "https"),
    )
    assert (fleet.pod.cpu, fleet.pod.memory, fleet.pod.shared_memory, fleet.pod.user) == ("12", "96Gi", "8Gi", 2000)
    unsupported = told(draft, DraftNoteKind.UNSUPPORTED)
    assert "HF_HOME, HF_TOKEN (from Secret hub)" in unsupported["environment"]
    assert {"argument --api-key", "analyses", "PodMonitor support-llm"} <= set(unsupported)


async def test_where_a_value_is_from_stands_next_to_it() -> None:
    lines = draft_text(await drafted("helm_rollout")).splitlines()
    assert "  replicas: 4  # from Rollout support-llm" in lines
    assert "    start_within: 20m  # from the startup probe of container vllm" in lines


async def test_what_stands_as_a_comment_can_be_switched_on(tmp_path: Path) -> None:
    text = draft_text(await drafted("helm_rollout"))
    text = text.replace("#   direct: {listener: inside}", "  direct: {listener: inside}")
    path = tmp_path / "delivery.yaml"
    path.write_text(text.replace("# traffic: {", "traffic: {"), encoding="utf-8")
    spec = load_spec(path, Delivery)
    assert fleet_of(spec).gateway.direct
    assert spec.traffic


async def test_a_rollout_over_a_deployment(tmp_path: Path) -> None:
    draft = await drafted("workload_ref")
    spec = loaded(draft, tmp_path)
    assert spec.engine.weights
    assert (spec.engine.weights.model, spec.engine.weights.revision) == ("acme/support-8b", "v{version}")
    assert spec.canary
    assert spec.canary.weights == (5, 25, 50)
    decide = told(draft, DraftNoteKind.DECIDE)
    assert {"engine.image", "engine.accelerator", "engine.vllm.version", "fleet.gateway.name"} <= set(decide)
    unsupported = told(draft, DraftNoteKind.UNSUPPORTED)
    assert {"route", "Service vllm", "argument --quantization", "command of container server"} <= set(unsupported)


async def test_istio(tmp_path: Path) -> None:
    draft = await drafted("istio")
    fleet = fleet_of(loaded(draft, tmp_path))
    assert (fleet.traffic, fleet.gateway.name, fleet.gateway.namespace) == ("istio", "public", "istio-ingress")
    assert fleet.nodes.gpu_labels == "gke"
    assert "VirtualService assistant" in told(draft, DraftNoteKind.UNSUPPORTED)


async def test_sidecars_and_what_else_a_pod_has() -> None:
    unsupported = told(await drafted("sidecars"), DraftNoteKind.UNSUPPORTED)
    named = {
        "sidecar",
        "init container",
        "environment",
        "annotations",
        "runtimeClassName",
        "service account",
        "volumes",
    }
    assert named <= set(unsupported)
    assert "* (from Secret chat-secrets)" in unsupported["environment"]


async def test_autoscalers(tmp_path: Path) -> None:
    keda = fleet_of(loaded(await drafted("scaled"), tmp_path)).autoscale
    assert keda
    assert (keda.by, keda.min_replicas, keda.max_replicas) == ("keda", 2, 9)
    draft = await drafted("hpa")
    hpa = fleet_of(loaded(draft, tmp_path)).autoscale
    assert hpa
    assert (hpa.by, hpa.min_replicas, hpa.max_replicas) == ("hpa", 2, 5)
    assert "there 2 to 4; wider here, so that `replicas` are within" in draft.comments[("fleet", "autoscale")]


async def test_the_node_tells_the_accelerator_where_the_pod_does_not(tmp_path: Path) -> None:
    spec = loaded(await drafted("scaled"), tmp_path)
    assert (spec.engine.accelerator, fleet_of(spec).nodes.gpu_labels) == ("nvidia-a100-80gb", "karpenter")


@pytest.mark.parametrize(
    ("context", "region"),
    [("gke_acme_europe-west4_prod", "europe-west4"), ("admin@prod", "admin-prod"), ("", "region-1")],
)
async def test_the_region_is_named_by_its_context_where_no_node_says_it(
    context: str, region: str, tmp_path: Path
) -> None:
    spec = loaded(draft_delivery(await surveyed("istio", context=context)), tmp_path)
    assert spec.regions.waves == ((region,),)


async def test_a_name_of_ones_own() -> None:
    lead = await surveyed("helm_rollout")
    assert draft_delivery(lead, name="mine").document["metadata"]["name"] == "mine"
    with pytest.raises(UsageError, match="HTTPRoute support-llm is there already"):
        draft_delivery(lead, name="support-llm")
    with pytest.raises(UsageError, match="--name: found 'Mine'; expected lower case"):
        draft_delivery(lead, name="Mine")


async def test_a_draft_for_an_adoption_has_the_rollouts_name_and_route(tmp_path: Path) -> None:
    lead = await surveyed("helm_rollout")
    draft = draft_delivery(lead, adopting=True)
    spec = loaded(draft, tmp_path)
    assert isinstance(spec.fleet, ArgoFleetSpec)
    assert (spec.metadata.name, spec.fleet.replicas) == (lead.name, lead.replicas)
    assert (spec.fleet.gateway.route or spec.metadata.name) == lead.traffic.route
    steps = list(next_steps(draft, lead, tmp_path / "delivery.yaml", adopting=True))
    assert steps[-2].command.startswith("tidegate rollout adopt ")
    assert "serve next to" not in " ".join(each.what for each in steps)
    with pytest.raises(UsageError, match=f"--name: found 'mine'; expected {lead.name}, the Rollout's own"):
        draft_delivery(lead, name="mine", adopting=True)


@pytest.mark.parametrize(
    ("routers", "adopting", "said"),
    [
        ((), True, "`rollout adopt` gives HTTPRoute support-llm weights"),
        ((), False, "tidegate moves requests by a gateway's weights"),
        (("istio",), True, "`rollout adopt` takes an HTTPRoute only"),
        (("istio",), False, None),
    ],
)
async def test_what_becomes_of_the_traffic_router_is_said_for_who_adopts_and_who_does_not(
    routers: tuple[str, ...], adopting: bool, said: str | None
) -> None:
    lead = await surveyed("helm_rollout")
    lead = lead.model_copy(update={"strategy": lead.strategy.model_copy(update={"routers": routers})})
    draft = draft_delivery(lead, adopting=adopting)
    notes = [each for each in draft.notes if each.subject == "traffic router"]
    assert [str(said) in each.action for each in notes] == ([True] if said else [])
