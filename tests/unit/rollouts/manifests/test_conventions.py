"""Where `slo` and `rollouts`, which do not import each other, must agree beyond the names in `tidegate.core.names`."""

from __future__ import annotations

from engine_images.accelerators import Accelerator
from rollouts.manifests.conventions import cluster_wide
from rollouts.manifests.pod_spec import GPUS


def test_deliveries_of_two_namespaces_never_share_an_object_of_the_cluster() -> None:
    assert cluster_wide("serving-eu", "chat-driver") != cluster_wide("serving", "eu-chat-driver")


def test_every_accelerator_but_a_cpu_is_known_to_somebodys_labels() -> None:
    assert set(GPUS) == set(Accelerator) - {Accelerator.CPU}
