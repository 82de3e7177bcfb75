"""What a spec asks for shows in what is rendered: accounts of others, steps, what an autoscaler asks, names."""

from __future__ import annotations

import promql_parser
import pytest
from fakes.clusters.region import NAME, a_fleet, an_image
from fakes.fleet import fleet_spec, release
from fakes.metrics.queries import metric_of

from engine_images.accelerators import Accelerator
from rollouts.manifests.conventions import cluster_wide
from rollouts.manifests.manifest import Release, Site
from rollouts.manifests.objects.capacity import Signal, signals
from rollouts.manifests.objects.rollout import steps_of
from rollouts.manifests.pod_spec import GPUS, AutoscaleSpec
from rollouts.manifests.render import render
from rollouts.manifests.spec import CanarySpec
from slo.promql import series_of
from tidegate.core.model import Json

ACCOUNT = "chat-with-identity"


def rendered(**changes: Json) -> tuple[Json, ...]:
    release = Release(
        delivery=NAME,
        region="eu-west-1",
        version="7",
        digest="d",
        image=an_image("7").image,
        guard="registry.example/tidegate@sha256:" + "1" * 64,
        driver=True,
    )
    return render(a_fleet("eu-west-1", admission=True, **changes), release)


def theirs() -> tuple[Json, ...]:
    return rendered(pod={"service_account": ACCOUNT})


def one(objects: tuple[Json, ...], kind: str) -> Json:
    (found,) = [each for each in objects if each["kind"] == kind]
    return found


def test_engines_run_as_that_account_which_is_not_made() -> None:
    objects = theirs()
    assert one(objects, "Rollout")["spec"]["template"]["spec"]["serviceAccountName"] == ACCOUNT
    made = {each["metadata"]["name"] for each in objects if each["kind"] == "ServiceAccount"}
    assert made == {f"{NAME}-driver", f"{NAME}-guard"}
    assert NAME in {each["metadata"]["name"] for each in rendered() if each["kind"] == "ServiceAccount"}


def test_the_policies_know_it() -> None:
    policies = [str(each["spec"]) for each in theirs() if each["kind"] == "ValidatingAdmissionPolicy"]
    assert sum(f'serviceAccountName == "{ACCOUNT}"' in each for each in policies) == 2


def steps(*weights: int, mirror: int = 100, engines: int = 4, **canary: int) -> list[Json]:
    return steps_of(release(mirror=mirror, weights=weights), CanarySpec.model_validate(canary), engines)


@pytest.mark.parametrize(
    ("mirror", "canary", "first"),
    [
        (100, {}, {"weight": 100}),
        (0, {}, {"replicas": 1}),
        (100, {"replicas": 3}, {"replicas": 3}),
    ],
)
def test_how_many_engines_a_canary_begins_with(mirror: int, canary: dict[str, int], first: Json) -> None:
    assert steps(5, mirror=mirror, **canary)[0] == {"setCanaryScale": first}


WANTED = AutoscaleSpec(min_replicas=1, max_replicas=4)
ALL = signals(Site(fleet=fleet_spec(), release=release()), WANTED)


@pytest.mark.parametrize("signal", ALL, ids=lambda signal: signal.name)
def test_a_signal_reads_series_that_engines_and_deliveries_export(signal: Signal) -> None:
    promql_parser.parse(signal.query)
    for series in series_of(signal.query):
        metric = metric_of(series)
        assert metric is not None, series
        assert {"service", "region"} <= set(metric.labels)


def test_deliveries_of_two_namespaces_never_share_an_object_of_the_cluster() -> None:
    assert cluster_wide("serving-eu", "chat-driver") != cluster_wide("serving", "eu-chat-driver")


def test_every_accelerator_but_a_cpu_is_known_to_somebodys_labels() -> None:
    assert set(GPUS) == set(Accelerator) - {Accelerator.CPU}
