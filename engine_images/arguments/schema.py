"""The arguments as a JSON schema, so that an editor completes them and marks a wrong one while it is written."""

from __future__ import annotations

from typing import Any

from engine_images.arguments.reserved import owner_of
from engine_images.arguments.values import AUTO
from engine_images.pinned.model import Kind, Option, PinnedVllm

Schema = dict[str, Any]

_COUNT: Schema = {"type": ["integer", "string"], "minimum": 0, "pattern": r"^(\d+(\.\d+)?[kmgt]|\d+[KMGT]?)$"}

_KINDS: dict[Kind, Schema] = {
    Kind.TEXT: {"type": ["string", "number"]},
    Kind.FLAG: {"type": "boolean"},
    Kind.INTEGER: {"type": "integer"},
    Kind.COUNT: _COUNT,
    Kind.LENGTH: {"anyOf": [_COUNT, {"const": AUTO}]},
    Kind.NUMBER: {"type": "number"},
    Kind.JSON: {"type": ["object", "array"]},
    Kind.OBJECT: {"type": "object"},
    Kind.TEXT_OR_JSON: {"type": ["string", "object"]},
    Kind.TEXT_OR_FLAG: {"anyOf": [{"type": "string"}, {"const": True}]},
}


def arguments_schema(vllm: PinnedVllm) -> Schema:
    """What `engine.vllm.args` may hold."""
    free = {name: option for name, option in vllm.options.items() if owner_of(name) is None and not option.deprecated}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: _property(option) for name, option in sorted(free.items())},
    }


def _property(option: Option) -> Schema:
    one = _value(option)
    if option.many:
        one = {"allOf": [one, {"not": {"type": "string", "pattern": "^-"}}]}
    described = {"anyOf": [one, {"type": "array", "items": one}]} if option.many else one
    return described if option.default is None else {**described, "default": option.default}


def _value(option: Option) -> Schema:
    if option.choices:
        return {"enum": list(option.choices)}
    if option.kind is Kind.FLAG and not option.negatable:
        return {"const": True}
    if option.fields:
        return {"type": "object", "propertyNames": {"enum": list(option.fields)}}
    return _KINDS[option.kind]
