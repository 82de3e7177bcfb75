"""The CustomResourceDefinitions of Argo Rollouts, for clusters that have none.

Made of the schemas by which tidegate judges its own manifests (`rollouts/manifests/schemas/argo-rollouts.json`), with
upstream's names, scopes and subresources (`manifests/crds/*.yaml`): a Rollout has a status of its own, an AnalysisRun
has not. Left out: descriptions, printed columns, short names of fields, and the scale subresource.
"""

from __future__ import annotations

import asyncio
import json
from functools import lru_cache
from typing import Any

from rollouts.errors import NotFound
from rollouts.kube.model import Json, Resource
from rollouts.kube.ports import Cluster
from rollouts.kube.resources import (
    ANALYSIS_RUNS,
    ANALYSIS_TEMPLATES,
    CLUSTER_ANALYSIS_TEMPLATES,
    CUSTOM_RESOURCE_DEFINITIONS,
    EXPERIMENTS,
    ROLLOUTS,
)
from rollouts.manifests.schema import SCHEMAS

KINDS: dict[Resource, tuple[str, ...]] = {
    ROLLOUTS: ("ro",),
    ANALYSIS_RUNS: ("ar",),
    ANALYSIS_TEMPLATES: ("at",),
    CLUSTER_ANALYSIS_TEMPLATES: ("cat",),
    EXPERIMENTS: ("exp",),
}
"""With their short names."""
_WITH_STATUS = (ROLLOUTS, EXPERIMENTS)
_SERVED_WITHIN_SECONDS = 30.0


def definitions() -> tuple[Json, ...]:
    return tuple(_definition(resource, short) for resource, short in KINDS.items())


async def install(cluster: Cluster) -> tuple[str, ...]:
    """Bring those that are missing, and wait until they are served; their names."""
    brought = []
    for definition in definitions():
        name = definition["metadata"]["name"]
        try:
            await cluster.get(CUSTOM_RESOURCE_DEFINITIONS, name)
        except NotFound:
            await cluster.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
            brought.append(name)
    async with asyncio.timeout(_SERVED_WITHIN_SECONDS):
        for resource in KINDS:
            while not await _served(cluster, resource):
                await asyncio.sleep(0.1)
    return tuple(brought)


async def _served(cluster: Cluster, resource: Resource) -> bool:
    try:
        await cluster.list(resource)
    except NotFound:
        return False
    return True


def _definition(resource: Resource, short: tuple[str, ...]) -> Json:
    document = _document()
    root = document["kinds"][f"{resource.api_version} {resource.kind}"]
    schema = _structural(document["definitions"][root], document["definitions"])
    schema["properties"] |= {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    version: Json = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema | {"required": ["spec"]}},
    }
    if resource in _WITH_STATUS:
        version["subresources"] = {"status": {}}
    singular = resource.kind.lower()
    names = {"kind": resource.kind, "listKind": f"{resource.kind}List", "plural": resource.plural}
    return {
        "apiVersion": CUSTOM_RESOURCE_DEFINITIONS.api_version,
        "kind": CUSTOM_RESOURCE_DEFINITIONS.kind,
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "names": names | {"singular": singular, "shortNames": list(short)},
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [version],
        },
    }


@lru_cache
def _document() -> Json:
    document: Json = json.loads((SCHEMAS / "argo-rollouts.json").read_text())
    return document


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
