"""Two rooms that do not know each other say the same words to the same pods."""

from __future__ import annotations

from fakes.fleets import fleet_spec, release

from engine_images.accelerators import Accelerator
from rollouts.manifests import conventions as rollouts_words
from rollouts.manifests.gpus import GPUS
from rollouts.manifests.render import render
from slo.kubernetes import conventions as slo_words
from slo.kubernetes.pod_monitor import ENGINE_PORT


def test_both_rooms_have_the_same_labels() -> None:
    for name in ("DELIVERY", "REGION", "VERSION", "ROLE", "POD_TEMPLATE_HASH"):
        assert getattr(rollouts_words, name) == getattr(slo_words, name)


def test_engines_are_scraped_where_they_answer() -> None:
    container = render(fleet_spec(), release())[-1]["spec"]["template"]["spec"]["containers"][0]
    assert [port["name"] for port in container["ports"]] == [ENGINE_PORT]


def test_every_accelerator_but_a_cpu_is_known_to_somebodys_labels() -> None:
    assert set(GPUS) == set(Accelerator) - {Accelerator.CPU}
