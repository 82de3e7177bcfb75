"""Whether a manifest is what its kind's schema says, strictly: a field that the kind does not know is wrong.

An API server drops unknown fields of custom resources without a word unless it is asked for `fieldValidation=Strict`
(argo-rollouts#4569: traffic stayed 50:50 for a whole rollout because of one). The schemas are in `schemas/`, and
`schemas/collect/collect.mjs` says where they come from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

from tidegate.core.model import Json, Loc, Value

SCHEMAS = Path(__file__).parent / "schemas"

_FILES = {
    "argoproj.io": "argo-rollouts",
    "gateway.networking.k8s.io": "gateway-api",
    "networking.istio.io": "istio",
    "karpenter.sh": "karpenter",
    "keda.sh": "keda",
    "monitoring.coreos.com": "prometheus-operator",
}
"""Where a group's kinds are; all others are Kubernetes' own."""
_WORKFLOWS = frozenset({"Workflow", "WorkflowTemplate"})
"""Kinds of Argo Workflows, whose group is that of Argo Rollouts."""


class SchemaProblem(Value):
    """One thing that is wrong in a manifest."""

    where: Loc
    """The field, key by key and index by index; of an unknown field, the field itself."""
    message: str

    @property
    def path(self) -> str:
        """As API servers write it: `spec.strategy.canary.steps[0].setWeight`."""
        parts = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.where)
        return parts.removeprefix(".")

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.where else self.message


def problems_in(manifest: Json) -> tuple[SchemaProblem, ...]:
    """Everything that is wrong in it, in the order of its fields; an unknown kind is a problem too."""
    api_version, kind = str(manifest.get("apiVersion", "")), str(manifest.get("kind", ""))
    name = "argo-workflows" if kind in _WORKFLOWS else _FILES.get(api_version.rpartition("/")[0], "kubernetes")
    document = _document(name)
    root = document["kinds"].get(f"{api_version} {kind}")
    if root is None:
        known = ", ".join(document["kinds"])
        told = f"found {kind or 'no kind'} of {api_version or 'no apiVersion'}; expected one of {known}"
        return (SchemaProblem(where=("kind",), message=told),)
    errors = _validator(name, root).iter_errors(manifest)
    found = dict.fromkeys(problem for error in errors for problem in _problems(error, document["definitions"]))
    return tuple(sorted(found, key=lambda problem: [str(part) for part in problem.where]))


@lru_cache
def _document(name: str) -> Json:
    document: Json = json.loads((SCHEMAS / f"{name}.json").read_text())
    return document


@lru_cache
def _validator(name: str, root: str) -> Any:
    # Of an extra: deliveries and rollbacks read manifests without it.
    import jsonschema_rs

    return jsonschema_rs.validator_for({"$ref": f"#/definitions/{root}", "definitions": _document(name)["definitions"]})


def _problems(error: Any, definitions: Json) -> Iterator[SchemaProblem]:
    """What one error of the validator says; of alternatives, what is wrong with the one that fits best."""
    kind, where = error.kind, tuple(error.instance_path)
    if kind.name in ("anyOf", "oneOf") and getattr(kind, "context", None):
        for inner in min(kind.context, key=len):
            yield from _problems(inner, definitions)
    elif kind.name == "additionalProperties":
        schema: Any = {"definitions": definitions}
        for part in error.schema_path[:-1]:
            schema = schema[part]
        known = list(schema.get("properties", ()))
        for name in kind.unexpected:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            yield SchemaProblem(where=(*where, name), message=f'unknown field "{name}"{hint}')
    elif kind.name == "required":
        yield SchemaProblem(where=(*where, kind.property), message="a required field is missing")
    else:
        yield SchemaProblem(where=where, message=error.message)
