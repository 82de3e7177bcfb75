"""Whatever a person may write in `fleet`: what is rendered of it is valid, whole, and holds together."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fakes.fleet import fleet_spec, region, release
from fakes.schemas import problems_in
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from rollouts.kube.resources import resource_of
from rollouts.manifests.manifest import Release
from rollouts.manifests.pod_spec import GPUS, GpuLabels
from rollouts.manifests.render import render
from rollouts.manifests.spec import ArgoFleetSpec, FleetValidationContext
from tidegate.core.model import Json
from tidegate.core.names import POD_TEMPLATE_HASH, ROLE

names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
hosts = st.from_regex(r"(\*\.)?[a-z]([-a-z0-9]{0,8}[a-z0-9])?(\.[a-z]{2,5}){1,2}", fullmatch=True)
keys = st.from_regex(r"([a-z]{1,9}\.(io|dev)/)?[A-Za-z]([-A-Za-z0-9_.]{0,9}[A-Za-z0-9])?", fullmatch=True)
texts = st.from_regex(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,9}[A-Za-z0-9])?)?", fullmatch=True)
shares = st.floats(0.01, 0.99)
lengths = st.integers(1, 3600).map(lambda seconds: timedelta(seconds=seconds))


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any of the fields, or none."""
    return st.fixed_dictionaries({}, optional=fields)


autoscales = st.builds(
    lambda least, more, rest: {"min_replicas": least, "max_replicas": least + more, **rest},
    st.integers(1, 4),
    st.integers(0, 12),
    some(waiting=st.floats(0.001, 100), kv_cache=shares),
)
nodes = some(
    selector=st.dictionaries(keys, texts, max_size=2),
    tolerates=st.lists(keys, max_size=2, unique=True).map(tuple),
    capacity=st.just("spot"),
    cloud=st.sampled_from(["aws", "gcp"]),
    gpu_labels=st.sampled_from(list(GpuLabels)),
    karpenter=st.fixed_dictionaries({"node_class": names, "most_gpus": st.integers(1, 64)}),
)
pods = some(
    cpu=st.sampled_from(["1", "500m", "1.5"]),
    memory=st.sampled_from(["32Gi", "1Ti"]),
    cache=some(size=st.just("10Gi"), claim=names, secret=names),
    start_within=lengths,
    drain=st.integers(6, 3600).map(lambda seconds: timedelta(seconds=seconds)),
    pull_secrets=st.lists(names, max_size=2).map(tuple),
    user=st.integers(1, 70000),
)
fleets = some(
    traffic=st.sampled_from(["gateway-api", "istio"]),
    gateway=st.builds(
        lambda name, served, rest: {"name": name, "hosts": tuple(served), **rest},
        names,
        st.lists(hosts, min_size=1, max_size=3, unique=True),
        some(
            namespace=names,
            listener=names,
            pods_in=st.lists(names, max_size=2).map(tuple),
            timeout=lengths,
        ),
    ),
    replicas=st.integers(1, 12),
    autoscale=autoscales,
    canary=some(replicas=st.integers(1, 8), after_abort=lengths),
    previous=st.none() | some(keep=lengths),
    pod=pods,
    nodes=nodes,
    warm_pool=some(share=shares),
    network=st.none() | some(ingress_from=st.lists(names, max_size=2).map(tuple), egress_to=st.just(("10.0.0.0/8",))),
    unavailable=st.none(),
    admission=st.booleans(),
    driver=st.booleans(),
    regions=names.map(lambda name: {name: region(name)}),
    namespace=names,
)
trials = st.fixed_dictionaries(
    {
        "mirror": st.integers(0, 100),
        "weights": st.sets(st.integers(1, 99), max_size=4).map(lambda some: tuple(sorted(some))),
    }
)


@st.composite
def sites(draw: st.DrawFn) -> tuple[ArgoFleetSpec, Release]:
    fleet = fleet_spec(**draw(fleets))
    known = [name for name, labellers in GPUS.items() if fleet.nodes.gpu_labels in labellers]
    engine = release(
        region=next(iter(fleet.regions)),
        accelerator=draw(st.sampled_from(["cpu", *known])),
        accelerators=draw(st.integers(1, 8)),
    )
    around = FleetValidationContext(
        name=engine.delivery, regions=(engine.region,), bake=timedelta(0), accelerator=engine.accelerator
    )
    assume(not [*fleet.all_contradictions(), *fleet.conflicts_with(around)])
    return fleet, engine


def of_kind(objects: tuple[Json, ...], kind: str) -> list[Json]:
    return [each for each in objects if each["kind"] == kind]


def names_of(objects: tuple[Json, ...], kind: str) -> set[str]:
    return {each["metadata"]["name"] for each in of_kind(objects, kind)}


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(sites(), trials)
def test_what_is_rendered_is_valid_and_holds_together(
    site: tuple[ArgoFleetSpec, Release], trial: dict[str, Any]
) -> None:
    fleet, engine = site
    guard = "registry.example.com/tidegate@sha256:" + "5" * 64
    engine = engine.model_copy(update={**trial, "guard": guard, "driver": fleet.driver or fleet.admission})
    objects = render(fleet, engine)
    assert [str(problem) for each in objects for problem in problems_in(each)] == []
    assert render(fleet, engine) == objects

    rollout = objects[-1]
    assert rollout["kind"] == "Rollout"
    pod = rollout["spec"]["template"]
    labels, selector = pod["metadata"]["labels"], rollout["spec"]["selector"]["matchLabels"]
    assert selector.items() <= labels.items()
    assert not {ROLE, POD_TEMPLATE_HASH} & labels.keys(), "set by Argo Rollouts alone"
    assert all(each["spec"]["selector"] == selector for each in of_kind(objects, "Service"))
    for pool in of_kind(objects, "Deployment"):
        assert not selector.items() & pool["spec"]["template"]["metadata"]["labels"].items()
        priority = pool["spec"]["template"]["spec"].get("priorityClassName")
        assert priority in {None, *names_of(objects, "PriorityClass")}
    assert pod["spec"]["serviceAccountName"] in names_of(objects, "ServiceAccount")
    assert len(names_of(objects, "Service")) == 2
    assert len({(each["kind"], each["metadata"]["name"]) for each in objects}) == len(objects)
    for each in objects:
        assert each["metadata"].get("namespace", fleet.namespace) == fleet.namespace
        assert ("namespace" in each["metadata"]) == resource_of(each).namespaced


@given(trials, st.integers(1, 20), st.none() | st.integers(1, 20))
def test_no_step_takes_engines_from_a_canary_or_sends_users_before_it_is_deployed(
    trial: dict[str, Any], replicas: int, given: int | None
) -> None:
    fleet = fleet_spec(replicas=replicas, canary={"replicas": given}, previous=None)
    rollout = render(fleet, release(**trial))[-1]
    steps = rollout["spec"]["strategy"]["canary"]["steps"]
    assert steps[1] == {"pause": {}}
    engines = [_engines(step["setCanaryScale"], replicas) for step in steps if "setCanaryScale" in step]
    assert engines == sorted(engines)
    now = 0.0
    for step in steps:
        now = _engines(step["setCanaryScale"], replicas) if "setCanaryScale" in step else now
        if "setWeight" in step:
            assert now >= replicas * step["setWeight"] / 100, "fewer engines than its share of users needs"
    assert [step["setWeight"] for step in steps if "setWeight" in step] == list(trial["weights"])
    assert steps[-1] == {"pause": {}}


def _engines(scale: Json, replicas: int) -> float:
    return float(scale["replicas"] if "replicas" in scale else replicas * scale["weight"] / 100)
