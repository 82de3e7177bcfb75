"""Whether a manifest is what its kind's schema says, strictly: a field that the kind does not know is wrong.

API servers that are asked for `fieldValidation=Strict` say the same; here kinds are judged that no cluster of the tests
has. `tests/golden/schemas/collect/collect.mjs` says where the schemas come from.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import jsonschema_rs

from tidegate.core.model import Json

SCHEMAS = Path(__file__).parents[1] / "golden" / "schemas"


@lru_cache(1)
def _known() -> dict[str, tuple[str, Json]]:
    """By `apiVersion` and `kind`: the name of the kind's definition, and all definitions of its file."""
    documents = [json.loads(path.read_text()) for path in SCHEMAS.glob("*.json")]
    return {kind: (root, each["definitions"]) for each in documents for kind, root in each["kinds"].items()}


@lru_cache
def _validator(kind: str) -> Any:
    root, definitions = _known()[kind]
    return jsonschema_rs.validator_for({"$ref": f"#/definitions/{root}", "definitions": definitions})


def problems_in(manifest: Json) -> list[str]:
    """Everything that is wrong in it, each with its place. An unknown kind is a `KeyError`."""
    found = _validator(f"{manifest['apiVersion']} {manifest['kind']}").iter_errors(manifest)
    return [f"{'.'.join(map(str, error.instance_path))}: {error.message}" for error in found]
