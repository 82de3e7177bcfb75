"""Manifests against the schemas of their kinds: what an API server would drop or refuse is named with its place."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from rollouts.manifests.schema import SCHEMAS, problems_in
from tidegate.core.model import Json

ROLLOUT: Json = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "Rollout",
    "metadata": {"name": "chat", "labels": {"app": "chat"}},
    "spec": {
        "replicas": 3,
        "rollbackWindow": {"revisions": 2},
        "selector": {"matchLabels": {"app": "chat"}},
        "strategy": {
            "canary": {
                "stableService": "chat-stable",
                "canaryService": "chat-canary",
                "trafficRouting": {"plugins": {"argoproj-labs/gatewayAPI": {"httpRoute": "chat", "namespace": "llm"}}},
                "steps": [
                    {"setCanaryScale": {"replicas": 1}},
                    {"pause": {}},
                    {"setWeight": 5},
                    {"pause": {"duration": "1h"}},
                ],
            }
        },
        "template": {
            "metadata": {"labels": {"app": "chat"}},
            "spec": {
                "containers": [{"name": "engine", "image": "engine:1", "resources": {"limits": {"nvidia.com/gpu": 1}}}]
            },
        },
    },
}


def with_change(path: str, value: object) -> Json:
    """The good Rollout with another value at a path of keys and indexes; None takes it away."""
    changed = copy.deepcopy(ROLLOUT)
    *way, last = (int(part) if part.isdigit() else part for part in path.split("/"))
    node: Any = changed
    for part in way:
        node = node[part]
    if value is None:
        del node[last]
    else:
        node[last] = value
    return changed


def said(manifest: Json) -> list[str]:
    return [str(problem) for problem in problems_in(manifest)]


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (
            "spec/strategy/canary/trafficRouting/gatewayAPI",  # argo-rollouts#4569
            {"httpRoute": "chat"},
            'spec.strategy.canary.trafficRouting.gatewayAPI: unknown field "gatewayAPI"',
        ),
        (
            "spec/strategy/canary/steps/2",
            {"setWeigth": 5},
            'spec.strategy.canary.steps[2].setWeigth: unknown field "setWeigth"; did you mean setWeight?',
        ),
        (
            "spec/template/spec/containers/0/name",
            None,
            "spec.template.spec.containers[0].name: a required field is missing",
        ),
        ("metadata/label", {}, 'metadata.label: unknown field "label"; did you mean labels?'),
    ],
)
def test_what_an_api_server_drops_or_refuses_is_named(path: str, value: object, problem: str) -> None:
    assert said(with_change(path, value)) == [problem]


def test_an_unknown_kind_is_a_problem_that_names_the_known_ones() -> None:
    (problem,) = problems_in({"apiVersion": "argoproj.io/v1beta1", "kind": "Rollout"})
    assert problem.where == ("kind",)
    assert "argoproj.io/v1alpha1 Rollout" in problem.message


def test_of_alternatives_the_best_fit_is_explained() -> None:
    match = {"uri": {"prefix": "/", "regexp": "x"}}
    route = {
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"name": "chat"},
        "spec": {"hosts": ["chat"], "http": [{"match": [match], "route": [{"destination": {"host": "chat"}}]}]},
    }
    assert said(route) == ['spec.http[0].match[0].uri.regexp: unknown field "regexp"; did you mean regex?']


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.stem)
def test_every_schema_refers_only_to_what_it_has(path: Any) -> None:
    document = json.loads(path.read_text())
    referred = {line.split('"')[0] for line in path.read_text().split("#/definitions/")[1:]}
    assert referred <= set(document["definitions"])
    assert set(document["kinds"].values()) <= set(document["definitions"])
