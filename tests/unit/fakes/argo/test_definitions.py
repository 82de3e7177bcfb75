"""Argo Rollouts' kinds as a cluster gets them that has none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fakes.argo.definitions import definitions

from rollouts.kube.model import Json

BY_NAME: dict[str, Json] = {one["metadata"]["name"]: one for one in definitions()}


def schema_of(name: str) -> Json:
    schema: Json = BY_NAME[name]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def parts(schema: Any) -> Iterator[Json]:
    yield schema
    for inner in schema.get("properties", {}).values():
        yield from parts(inner)
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from parts(schema[key])


def test_statuses_have_a_door_of_their_own_where_upstream_has_one() -> None:
    doors = {name for name, one in BY_NAME.items() if "status" in one["spec"]["versions"][0].get("subresources", {})}
    assert doors == {"rollouts.argoproj.io", "experiments.argoproj.io"}


def test_only_templates_for_all_namespaces_are_in_none() -> None:
    scopes = {name: one["spec"]["scope"] for name, one in BY_NAME.items()}
    assert {name for name, scope in scopes.items() if scope == "Cluster"} == {"clusteranalysistemplates.argoproj.io"}


def test_every_part_says_what_it_is() -> None:
    """What the API server asks of a structural schema."""
    for name in BY_NAME:
        for part in parts(schema_of(name)):
            assert "$ref" not in part
            assert isinstance(part.get("type"), str) or any(key.startswith("x-kubernetes-") for key in part), part


def test_plugins_keep_what_they_are_given_and_other_routers_do_not() -> None:
    canary = schema_of("rollouts.argoproj.io")["properties"]["spec"]["properties"]["strategy"]["properties"]["canary"]
    traffic = canary["properties"]["trafficRouting"]
    assert traffic["properties"]["plugins"]["x-kubernetes-preserve-unknown-fields"]
    assert "gatewayAPI" not in traffic["properties"]
    assert "x-kubernetes-preserve-unknown-fields" not in traffic
    assert canary["properties"]["maxSurge"] == {"x-kubernetes-int-or-string": True}
