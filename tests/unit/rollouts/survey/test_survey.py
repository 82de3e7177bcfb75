"""What is read of a workload that others made, and that nothing but reading is done."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.clusters.existing import NAMESPACE, existing, recorded
from fakes.kube.api import Api
from fakes.kube.cluster import FakeCluster
from fakes.kube.server import client_of

from rollouts.kube.resources import GATEWAYS, NODES, ROLLOUTS
from rollouts.survey import ServingSurvey, survey
from tidegate.core.errors import UsageError

pytestmark = pytest.mark.long


async def look(api: Api, case: str, **asked: Any) -> ServingSurvey:
    name = recorded(case)[0]["metadata"]["name"]
    return await survey(client_of(api), asked.pop("name", name), **PLACE, **asked)


PLACE = {"context": "prod", "namespace": NAMESPACE}


@pytest.mark.parametrize("case", ["helm_rollout", "workload_ref", "istio", "sidecars", "scaled", "hpa"])
async def test_it_only_reads_and_reads_no_secret(case: str) -> None:
    api = Api(existing(case))
    await look(api, case)
    assert {call.verb for call in api.calls} <= {"get", "list"}
    assert "secrets" not in {call.plural for call in api.calls}


async def test_a_rollout_of_a_chart() -> None:
    found = await look(Api(existing("helm_rollout")), "helm_rollout")
    assert "managed by Helm release chat" in found.owner
    assert (found.replicas, found.strategy.weights, found.strategy.analyses) == (4, (10, 40), ("latency",))
    assert found.pod.engine.digest == "sha256:" + "1" * 64
    assert found.pod.engine.accelerators == {"nvidia.com/gpu": 2}
    assert found.pod.labels == {"team": "support"}
    assert found.traffic.entry == "https://support.example.com"
    assert (found.traffic.listener, found.traffic.other_listeners) == ("https", ("inside",))
    assert [each.source for each in found.pod.engine.environment] == ["a value", "Secret hub"]
    assert [each.address for each in found.prometheus] == ["http://prometheus.monitoring.svc:9090"]
    assert {"Rollout support-llm", "Service support-llm-stable", "HTTPRoute support-llm"} <= found.taken


async def test_the_container_with_vllm_serves_unless_another_is_named() -> None:
    api = Api(existing("sidecars"))
    assert (await look(api, "sidecars")).pod.engine.name == "vllm"
    assert (await look(api, "sidecars", container="logs")).pod.engine.name == "logs"
    with pytest.raises(UsageError, match="--container: found 'web'; expected one of logs, vllm"):
        await look(api, "sidecars", container="web")


async def test_what_may_not_be_read_is_named_and_the_rest_is_told() -> None:
    api = Api(existing("helm_rollout"))
    own = {"apiGroups": ["", "apps", "argoproj.io", "gateway.networking.k8s.io"], "resources": ["*"], "verbs": ["*"]}
    api.access.allow_only(own)
    found = await look(api, "helm_rollout")
    assert found.traffic.gateway == "users"
    assert any("nodes (not allowed)" in each for each in found.unread)
    assert any("horizontalpodautoscalers" in each for each in found.unread)


async def test_kinds_that_are_not_installed_have_no_objects() -> None:
    cluster = existing("workload_ref")
    cluster.uninstall(GATEWAYS)
    assert (await look(Api(cluster), "workload_ref")).unread == ()


async def test_a_name_that_nothing_has() -> None:
    api = Api(existing("helm_rollout"))
    with pytest.raises(UsageError, match="there is no Rollout other in serving; there are support-llm"):
        await look(api, "helm_rollout", name="other")
    with pytest.raises(UsageError, match="is it in another namespace"):
        await look(Api(FakeCluster(namespace=NAMESPACE)), "helm_rollout")


async def test_tidegates_own_is_no_start() -> None:
    cluster = existing("helm_rollout")
    cluster.patch(ROLLOUTS, "support-llm", {"metadata": {"labels": {"tidegate.dev/delivery": "support"}}})
    with pytest.raises(UsageError, match="tidegate's own already, of delivery support"):
        await look(Api(cluster), "helm_rollout")


async def test_a_node_that_is_gone_says_nothing() -> None:
    cluster = existing("scaled")
    cluster.delete(NODES, "gpu-2")
    found = await look(Api(cluster), "scaled")
    assert (found.pod.node_labels, found.unread) == ({}, ())
