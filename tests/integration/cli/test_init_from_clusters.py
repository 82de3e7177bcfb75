"""`tidegate init --from-rollout` and `--from-route` against API servers on sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.clusters.existing import NAMESPACE, existing
from fakes.clusters.two_backends import TwoBackends
from fakes.kube.api import Api
from fakes.kube.server import FakeServers, serving
from fakes.terminal import Tidegate

from pipelines.adapters.specs import read_delivery
from rollouts.kube.resources import DEPLOYMENTS, HTTP_ROUTES, POD_MONITORS, ROLLOUTS, Resource
from rollouts.manifests.conventions import TrafficRouter
from rollouts.manifests.theirs_spec import ReferencedFleetSpec, RouteFleetSpec
from tidegate.core.model import Json

CONTEXTS = ("prod-eu-west-1", "stage", "mesh")
FROM = ("init", "--from-rollout", "support-llm", "--context", CONTEXTS[0])


@pytest.fixture
def clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServers]:
    """Each with a Rollout of its own."""
    cases = dict(zip(CONTEXTS, ("helm_rollout", "sidecars", "istio"), strict=True))
    apis = {name: Api(existing(case, name=name, real_time=True)) for name, case in cases.items()}
    with serving(apis, tmp_path, namespace=NAMESPACE) as servers:
        monkeypatch.setenv("KUBECONFIG", str(servers.kubeconfig))
        yield servers


def fleet_of(path: Path) -> ReferencedFleetSpec:
    fleet = read_delivery(path).fleet
    assert isinstance(fleet, ReferencedFleetSpec)
    return fleet


def test_the_spec_names_what_is_there_and_changes_nothing(
    clusters: FakeServers, tidegate: Tidegate, tmp_path: Path
) -> None:
    said = tidegate(*FROM)
    assert (said.code, said.out.splitlines()[0]) == (0, "delivery.yaml"), said
    assert "next: replace what is marked TODO, then: tidegate plan delivery.yaml" in said.out
    spec, fleet = read_delivery(tmp_path / "delivery.yaml"), fleet_of(tmp_path / "delivery.yaml")
    assert (spec.metadata.name, spec.engine.vllm.version) == ("support-llm", "0.32.0")
    assert spec.canary and spec.canary.weights == (40,), "the step that ends by itself is no stage"
    theirs, there = fleet.rollout, fleet.regions["prod-eu-west-1"]
    assert (theirs.container, theirs.route, theirs.canary_service) == ("vllm", "support-llm", "support-llm-canary")
    assert (fleet.namespace, there.context, there.entry) == (
        NAMESPACE,
        "prod-eu-west-1",
        "https://support.example.com",
    )
    written = (tmp_path / "delivery.yaml").read_text(encoding="utf-8")
    assert "not-for-files" not in written + said.out + said.err
    calls = clusters.api(CONTEXTS[0]).calls
    assert ({call.verb for call in calls}, "secrets" in {call.plural for call in calls}) == ({"get"}, False)


def test_a_rollout_with_the_template_of_a_deployment(clusters: FakeServers, tidegate: Tidegate, tmp_path: Path) -> None:
    cluster = clusters.api(CONTEXTS[0]).cluster
    spec = cluster.get(ROLLOUTS, "support-llm")["spec"]
    own = {key: spec[key] for key in ("selector", "template")}
    metadata = {"name": "engines", "namespace": NAMESPACE}
    cluster.create(DEPLOYMENTS, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": own})

    def borrow(live: Json) -> None:
        live["spec"].pop("template")
        live["spec"]["workloadRef"] = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "engines"}

    cluster.edit(ROLLOUTS, "support-llm", borrow)
    assert tidegate(*FROM).code == 0
    theirs = fleet_of(tmp_path / "delivery.yaml").rollout
    assert (theirs.workload, theirs.container) == ("engines", "vllm")


def test_what_a_region_gets_beside_it(clusters: FakeServers, tidegate: Tidegate) -> None:
    assert tidegate(*FROM).code == 0
    said = tidegate("rollout", "render", "delivery.yaml", "-o", "name")
    assert said.out.split() == [
        "serviceaccount/support-llm-driver",
        "role.rbac.authorization.k8s.io/support-llm-driver",
        "rolebinding.rbac.authorization.k8s.io/support-llm-driver",
    ]
    ignored = tidegate("rollout", "render", "delivery.yaml", "--as", "argo-ignore").out
    assert ("/spec/template/spec/containers" in ignored, "/spec/rules" in ignored) == (True, True)


def test_istio_and_another_name(clusters: FakeServers, tidegate: Tidegate, tmp_path: Path) -> None:
    words = ("--context", "mesh", "--namespace", NAMESPACE, "--name", "talk")
    said = tidegate("init", "new/spec.yaml", "--from-rollout", "assistant", *words)
    assert said.code == 0, said.err
    assert read_delivery(tmp_path / "new/spec.yaml").metadata.name == "talk"
    assert fleet_of(tmp_path / "new/spec.yaml").traffic is TrafficRouter.ISTIO


@pytest.mark.parametrize("pools", [False, True], ids=["services", "pools"])
def test_two_backends_of_a_route(clusters: FakeServers, tidegate: Tidegate, tmp_path: Path, pools: bool) -> None:
    cluster, words = clusters.api(CONTEXTS[0]).cluster, ("init", "--from-route", "chat", "--context", CONTEXTS[0])
    clusters.do(lambda: TwoBackends(cluster, pools=pools))
    assert tidegate(*words).code == 0
    written = (tmp_path / "delivery.yaml").read_text(encoding="utf-8")
    assert "# TODO: `label`, and `series` of each peer" in written
    fleet = read_delivery(tmp_path / "delivery.yaml").fleet
    assert isinstance(fleet, RouteFleetSpec)
    assert [(name, str(each.kind), each.series) for name, each in fleet.peers.items()] == [
        (name, "InferencePool" if pools else "Service", name) for name in ("llm-blue", "llm-green")
    ]
    assert (tmp_path / "delivery.yaml").rename(tmp_path / "first.yaml")
    metadata = {"name": "engines", "namespace": NAMESPACE}
    labelled = {"selector": {}, "podMetricsEndpoints": [], "podTargetLabels": ["team", "app"]}
    cluster.create(POD_MONITORS, {**kind_of(POD_MONITORS), "metadata": metadata, "spec": labelled})

    def with_arguments(live: Json) -> None:
        live["spec"]["template"]["spec"]["containers"][0]["args"] = ["--port=8000", "--model=/models/llm/12"]

    clusters.do(lambda: [cluster.edit(DEPLOYMENTS, f"llm-{name}", with_arguments) for name in ("blue", "green")])
    assert tidegate(*words).code == 0
    fleet = read_delivery(tmp_path / "delivery.yaml").fleet
    assert isinstance(fleet, RouteFleetSpec)
    green = fleet.peers["llm-green"]
    assert (fleet.label, green.series, green.workload and green.workload.name) == ("app", "llm-green", "llm-green")
    assert green.workload
    assert green.workload.set == {"/spec/template/spec/containers/0/args/1": "--model=/models/llm/{version}"}
    assert {call.verb for call in clusters.api(CONTEXTS[0]).calls} <= {"get", "list"}


@pytest.mark.parametrize(
    ("backends", "told"),
    [(["a"], "found backends a; expected"), (["a", "b", "c"], "found backends a, b, c; expected rules that share")],
)
def test_a_route_of_one_or_three_backends_is_refused(
    clusters: FakeServers, tidegate: Tidegate, backends: list[str], told: str
) -> None:
    spec = {"rules": [{"backendRefs": [{"name": name, "port": 80} for name in backends]}]}
    route = {**kind_of(HTTP_ROUTES), "metadata": {"name": "chat", "namespace": NAMESPACE}, "spec": spec}
    clusters.api(CONTEXTS[0]).cluster.create(HTTP_ROUTES, route)
    said = tidegate("init", "--from-route", "chat", "--context", CONTEXTS[0])
    assert (said.code, told in said.err, said.err.count("\n")) == (2, True, 1), said.err


def kind_of(resource: Resource) -> Json:
    return {"apiVersion": resource.api_version, "kind": resource.kind}


def test_a_file_that_is_there_stays_and_no_cluster_is_asked(
    clusters: FakeServers, tidegate: Tidegate, tmp_path: Path
) -> None:
    (tmp_path / "delivery.yaml").write_text("mine")
    said = tidegate(*FROM)
    assert (said.code, said.err) == (
        2,
        "tidegate: delivery.yaml is already there; name another file, which ends in .yaml\n",
    )
    assert (tmp_path / "delivery.yaml").read_text() == "mine"
    assert clusters.api(CONTEXTS[0]).calls == []


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("--from-rollout", "other", "--context", CONTEXTS[0]), (2, "there is no Rollout other in serving")),
        (("--from-rollout", "support-llm", "--context", "mars"), (2, "no context mars")),
        ((*FROM[1:], "--container", "web"), (2, "--container: found web; expected one of: vllm")),
        (("--context", CONTEXTS[0]), (2, "--context: only with --from-rollout")),
        ((*FROM[1:], "--from-route", "chat"), (2, "--from-rollout and --from-route: found both")),
        (("--from-route", "chat", "--context", CONTEXTS[0]), (2, "there is no HTTPRoute chat in serving")),
    ],
)
def test_what_cannot_be_is_one_line_and_writes_nothing(
    clusters: FakeServers, tidegate: Tidegate, tmp_path: Path, words: tuple[str, ...], answer: tuple[int, str]
) -> None:
    said, (code, message) = tidegate("init", *words), answer
    assert (said.code, message in said.err, said.err.count("\n")) == (code, True, 1), said.err
    assert not (tmp_path / "delivery.yaml").exists()
