from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import promql_parser
import pytest
import yaml
from fakes.metrics.queries import filled_in, read, together
from hypothesis import given
from hypothesis import strategies as st

from slo.export import ExportCluster, ExportedFile, export_files
from slo.rules import rules_for
from slo.spec import CostSpec, CountedBy, SloSpec
from slo.windows import windows_for
from tidegate.core.names import DELIVERY, object_name
from tidegate.core.units import parse_prometheus_duration

KIBIBYTE = 1024
APPLY_AT_MOST = 256 * KIBIBYTE
"""What `kubectl apply` can keep in its annotation of the last applied object; other limits are wider."""

SLOS: tuple[dict[str, Any], ...] = (
    {"name": "availability", "objective": 99.9, "errors": {}},
    {"name": "first-token", "objective": 99, "ttft": {"below": "250ms"}},
    {"name": "token-gap", "objective": 99, "itl": {"below": "50ms"}},
    {"name": "whole-answer", "objective": 95, "e2e": {"below": "10s"}},
    {"name": "queue", "objective": 99, "queue_time": {"below": "1s"}},
    {"name": "speed", "objective": 95, "tokens_per_second": {"at_least": 20}},
    {"name": "kv-cache", "objective": 95, "kv_cache": {"below": "90%"}},
    {"name": "quality", "objective": 95, "window": "28d", "quality": {"at_least": 0.8}},
)
PROMISES = tuple(SloSpec.model_validate(slo) for slo in SLOS)


def files(delivery: str = "support-llm", promises: Sequence[SloSpec] = PROMISES) -> dict[str, ExportedFile]:
    made = export_files(
        delivery,
        promises,
        counted_by=CountedBy.ENGINE,
        stage=timedelta(minutes=30),
        scrape_interval=timedelta(seconds=5),
        cost=CostSpec(per_engine_hour=2.5),
        cluster=ExportCluster(namespace="serving", labels={"release": "monitoring"}),
    )
    return {file.name: file for file in made}


def objects(*names: str) -> list[dict[str, Any]]:
    made = files()
    return [each for name in names for each in yaml.safe_load_all(made[name].text)]


VALID = r"(?=.{1,63}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
"""Of the API server: words of small letters, digits and dashes with dots between them."""

ALL_OBJECTS = ("prometheus-rule.yaml", "analysis-templates.yaml", "pod-monitors.yaml")


def test_every_object_has_a_name_of_its_own_its_namespace_and_the_labels_that_selectors_ask_for() -> None:
    found = objects(*ALL_OBJECTS)
    assert len({(each["kind"], each["metadata"]["name"]) for each in found}) == len(found) == 9 + 16 + 2
    for metadata in (each["metadata"] for each in found):
        assert re.fullmatch(VALID, metadata["name"])
        assert metadata["namespace"] == "serving"
        assert metadata["labels"].items() >= {"release": "monitoring", DELIVERY: "support-llm"}.items()


def test_deliveries_in_one_cluster_have_objects_of_their_own() -> None:
    """Even where the names of a delivery and of its SLO make the same words as those of another."""
    ttft = PROMISES[1]
    named = {"chat": "eu-ttft", "chat-eu": "ttft"}
    made = [files(delivery, [ttft.model_copy(update={"name": name})]) for delivery, name in named.items()]
    names = [
        (each["kind"], each["metadata"]["name"])
        for files_of_one in made
        for name in ALL_OBJECTS
        for each in yaml.safe_load_all(files_of_one[name].text)
    ]
    assert len(set(names)) == len(names) == 2 * (2 + 2 + 2)


def test_every_object_is_small_enough_to_be_applied() -> None:
    assert max(len(json.dumps(each)) for each in objects(*ALL_OBJECTS)) < APPLY_AT_MOST


def test_sloths_files_are_the_same_slos() -> None:
    """What Sloth would make of them, called as their first line says, are our rules."""
    made = files()
    again = []
    for name in ("sloth.yaml", "sloth-28d.yaml"):
        period = re.search(r"--default-slo-period (\S+)", made[name].text)
        assert period
        (group,) = read(made[name].text, file=name, default_period=parse_prometheus_duration(period[1]))
        again += [rules.to_dict() for rules in rules_for(group, windows_for(group.slos[0].window))]
    plain = yaml.safe_load(made["rules.yaml"].text)["groups"]
    assert again == [group for group in plain if group["name"].startswith("sloth-slo-")]


@pytest.mark.parametrize("suffix", ["step", "background"])
def test_templates_of_all_slos_stand_in_one_analysis(suffix: str) -> None:
    templates = [each for each in objects("analysis-templates.yaml") if each["metadata"]["name"].endswith(suffix)]
    assert len(templates) == len(SLOS)
    metrics = together(templates)
    assert len(metrics) == 2 * len(SLOS)
    assert all(("count" in metric) == (suffix == "step") for metric in metrics)


def test_every_query_is_promql_once_it_is_filled_in_and_levels_count_looks() -> None:
    arm = {"region": "eu-west-1", "version": "7", "pod-template-hash": "6f7"}
    for each in objects("analysis-templates.yaml"):
        for query in filled_in(each, arm).values():
            promql_parser.parse(query)
        of_level = any(kind in each["metadata"]["name"] for kind in ("kv-cache", "quality"))
        assert of_level == ("least-looks" in {argument["name"] for argument in each["spec"]["args"]})


@given(st.lists(st.text(alphabet="abcXYZ019._-", min_size=1, max_size=80), min_size=2, max_size=2, unique=True))
def test_names_are_valid_and_two_identities_never_share_one(identities: list[str]) -> None:
    one, other = (object_name(identity, "step") for identity in identities)
    assert re.fullmatch(VALID, one) and re.fullmatch(VALID, other)
    assert one != other
