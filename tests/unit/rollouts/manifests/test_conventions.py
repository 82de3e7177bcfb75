"""Where `slo` and `rollouts`, which do not import each other, must agree beyond the names in `tidegate.core.names`."""

from __future__ import annotations

from fakes.fleet import fleet_spec, release

from engine_images.accelerators import Accelerator
from rollouts.manifests.conventions import cluster_wide
from rollouts.manifests.nodes_spec import GPUS
from rollouts.manifests.render import render
from slo.kubernetes.pod_monitor import ENGINE_PORT


def test_engines_are_scraped_where_they_answer() -> None:
    container = render(fleet_spec(), release())[-1]["spec"]["template"]["spec"]["containers"][0]
    assert [port["name"] for port in container["ports"]] == [ENGINE_PORT]


def test_deliveries_of_two_namespaces_never_share_an_object_of_the_cluster() -> None:
    assert cluster_wide("serving-eu", "chat-driver") != cluster_wide("serving", "eu-chat-driver")


def test_every_accelerator_but_a_cpu_is_known_to_somebodys_labels() -> None:
    assert set(GPUS) == set(Accelerator) - {Accelerator.CPU}
