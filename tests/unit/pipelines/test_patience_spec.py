"""How long a delivery goes on without each of its sources, in one place."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import yaml
from fakes.clusters.world import demo_on_clusters
from fakes.delivery.world import SPEC, a_spec

from pipelines.events.writer import WriterLimits
from pipelines.spec.delivery import Delivery
from tidegate.core.spec import SpecError, parse_spec

MINUTE = timedelta(minutes=1)


def on_clusters(**changes: Any) -> Delivery:
    data = demo_on_clusters().model_dump(mode="json", exclude_unset=True, by_alias=True)
    return parse_spec(yaml.safe_dump(data | changes), Delivery, file="delivery.yaml")


def test_each_source_is_given_the_time_of_a_restart() -> None:
    spec = a_spec()
    assert (spec.patience.metrics, spec.patience.registry, spec.patience.api) == (2 * MINUTE, 10 * MINUTE, 10 * MINUTE)
    assert WriterLimits.of(spec.patience) == WriterLimits()


def test_it_is_said_in_one_place() -> None:
    text = SPEC + "patience: {metrics: 1m, registry: 5m, api: 20m, call: 3s, end: 5s}\n"
    spec = parse_spec(text, Delivery, file="delivery.yaml")
    assert spec.patience.api == 20 * MINUTE
    assert WriterLimits.of(spec.patience) == WriterLimits(call=3, patience=300, end=5)


def test_a_trial_that_nobody_carries_outlives_every_silence() -> None:
    with pytest.raises(
        SpecError, match=r"fleet.unattended: found 15m; expected more than `patience.api`, which is 20m"
    ):
        on_clusters(patience={"api": "20m"})


@pytest.mark.parametrize("source", ["metrics", "registry"])
@pytest.mark.parametrize("on", ["this machine", "clusters"])
def test_a_wait_for_anything_is_shorter_than_what_ends_a_trial(source: str, on: str) -> None:
    expected = rf"fleet.unattended: found 15m; expected more than `patience.{source}`, which is 15m"
    with pytest.raises(SpecError, match=expected):
        if on == "clusters":
            on_clusters(patience={source: "15m"})
        else:
            parse_spec(SPEC + f"patience: {{{source}: 15m}}\n", Delivery, file="delivery.yaml")
