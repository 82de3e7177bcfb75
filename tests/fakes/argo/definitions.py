"""The CustomResourceDefinitions of Argo Rollouts, for clusters that have none.

They are made of the schemas by which tests judge manifests, with upstream's names, scopes and subresources
(`manifests/crds/*.yaml`): a Rollout has a status of its own, an AnalysisRun has not. Left out: descriptions, printed
columns, short names of fields, and the scale subresource. Only Python's own library is needed: clusters are brought up
while the project is still being installed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

Json = dict[str, Any]

SCHEMAS = Path(__file__).parents[2] / "golden" / "schemas" / "argo-rollouts.json"
GROUP, VERSION = "argoproj.io", "v1alpha1"


class _Kind(NamedTuple):
    name: str
    plural: str
    short: str
    namespaced: bool = True
    status: bool = False
    """Whether it is a subresource."""


_KINDS = (
    _Kind("Rollout", "rollouts", "ro", status=True),
    _Kind("AnalysisRun", "analysisruns", "ar"),
    _Kind("AnalysisTemplate", "analysistemplates", "at"),
    _Kind("ClusterAnalysisTemplate", "clusteranalysistemplates", "cat", namespaced=False),
    _Kind("Experiment", "experiments", "exp", status=True),
)


def definitions() -> tuple[Json, ...]:
    """One of each kind."""
    document = json.loads(SCHEMAS.read_text(encoding="utf-8"))
    return tuple(_definition(kind, document) for kind in _KINDS)


def _definition(kind: _Kind, document: Json) -> Json:
    root = document["kinds"][f"{GROUP}/{VERSION} {kind.name}"]
    schema = _structural(document["definitions"][root], document["definitions"])
    schema["properties"] |= {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    version: Json = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema | {"required": ["spec"]}},
    }
    if kind.status:
        version["subresources"] = {"status": {}}
    names = {"kind": kind.name, "listKind": f"{kind.name}List", "plural": kind.plural}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": names | {"singular": kind.name.lower(), "shortNames": [kind.short]},
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [version],
        },
    }


def _structural(schema: Json, known: Json) -> Json:
    """As a CustomResourceDefinition takes it: no references, nothing closed, numbers-or-text by their own name."""
    if "$ref" in schema:
        return _structural(known[schema["$ref"].rpartition("/")[2]], known)
    kind: Any = schema.get("type")
    if isinstance(kind, list):
        kinds = [one for one in kind if one != "null"]
        if len(kinds) > 1:
            return {"x-kubernetes-int-or-string": True}
        kind = kinds[0]
    if kind is None:
        return {"x-kubernetes-preserve-unknown-fields": True}
    made: Json = {"type": kind} | {key: schema[key] for key in ("enum", "required") if key in schema}
    if "properties" in schema:
        made["properties"] = {name: _structural(one, known) for name, one in schema["properties"].items()}
        if "containerPort" in made["properties"]:
            made["properties"]["protocol"]["default"] = "TCP"
    elif kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        made["additionalProperties"] = _structural(schema["additionalProperties"], known)
    elif kind == "object":
        made["x-kubernetes-preserve-unknown-fields"] = True
    if kind == "array":
        made["items"] = _structural(schema.get("items", {}), known)
    return made
