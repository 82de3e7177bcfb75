"""Which arguments a spec may set: every problem with them at once, and their JSON schema for editors.

Three kinds are refused or restricted: what this vLLM does not know, what follows from something else in the delivery,
and what loads code, reads files or reveals what users said (`external_references`). Where a spec comes from a pull
request the last kind would run on GPU nodes what nobody reviewed; who operates the machines may allow each by name
and value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from engine_images.arguments.pinned import Option, OptionKind, PinnedVllm
from engine_images.arguments.serving import LOADERS
from engine_images.arguments.values import AUTO, Arguments, complaint, nearest

RESERVED = {
    "address": ("host", "port", "uds", "root-path", "api-server-count", "headless", "served-model-name", "grpc"),
    "registered model version": (
        *("model", "model-tag", "tokenizer", "hf-config-path", "chat-template", "download-dir"),
        *("revision", "code-revision", "tokenizer-revision"),
    ),
    "rule that no code or pickle of a model version is run": ("trust-remote-code",),
    "rest of the spec": ("enforce-eager", "config", "generation-config", "override-generation-config"),
    "way an engine is watched and stopped": ("shutdown-timeout", "enable-tokenizer-info-endpoint", "api-key"),
    "rule that a spec holds no secrets": ("hf-token",),
}
"""By what they follow from. A spec that set one would contradict it."""

_OWNERS = {argument: owner for owner, arguments in RESERVED.items() for argument in arguments}


def owner_of(name: str) -> str | None:
    """What the argument `name`, or its negation, follows from; None for one that a spec may set."""
    return _OWNERS.get(name.removeprefix("no-"))


_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass(frozen=True)
class WrongArgument:
    """One argument that vLLM, or tidegate, would not take."""

    name: str
    found: str
    expected: str


def wrong_arguments(args: Mapping[str, JsonValue], vllm: PinnedVllm | None) -> Iterator[WrongArgument]:
    """Every argument that is wrong; without a known vLLM only the names can be judged."""
    for name, value in args.items():
        wrong = _wrong_name(name) or _unsafe_loader(name, value) or (vllm and _not_of(vllm, name, value))
        if wrong:
            yield wrong


def _wrong_name(name: str) -> WrongArgument | None:
    key, _, inner = name.partition(".")
    if inner and _NAME.fullmatch(key):
        return WrongArgument(name, repr(name), f"a mapping: {key}: {{{inner.replace('.', ': {', 1)}: ...}}")
    if _NAME.fullmatch(name) is None:
        return WrongArgument(
            name, repr(name), "an argument as vLLM writes it, without the dashes in front: max-model-len"
        )
    owner = owner_of(name)
    if owner is None:
        return None
    return WrongArgument(
        name, repr(name), f"an argument of vLLM that tidegate does not set itself; this one follows from the {owner}"
    )


def _unsafe_loader(name: str, value: JsonValue) -> WrongArgument | None:
    if name != "load-format" or (isinstance(value, str) and value in LOADERS):
        return None
    return WrongArgument(name, repr(value), f"one of {', '.join(LOADERS)}: no pickle of a model version is read")


def _not_of(vllm: PinnedVllm, name: str, value: JsonValue) -> WrongArgument | None:
    option = vllm.options.get(name)
    if option is None:
        return WrongArgument(name, "an unknown argument", _did_you_mean(vllm, name))
    if option.deprecated:
        return WrongArgument(name, "a deprecated argument", "one that the next vLLM will know too")
    expected = complaint(option, value)
    return WrongArgument(name, repr(value), expected) if expected else None


def _did_you_mean(vllm: PinnedVllm, name: str) -> str:
    positive = name.removeprefix("no-")
    if positive != name and positive in vllm.options and vllm.options[positive].negatable:
        return f"{positive}: false"
    free = (option for option in vllm.options if owner_of(option) is None)
    near = nearest(name, free)
    return f"an argument of vLLM {vllm.vllm}" + (f": did you mean {near}?" if near else "")


Schema = dict[str, Any]

_COUNT: Schema = {"type": ["integer", "string"], "minimum": 0, "pattern": r"^(\d+(\.\d+)?[kmgt]|\d+[KMGT]?)$"}

_KINDS: dict[OptionKind, Schema] = {
    OptionKind.TEXT: {"type": ["string", "number"]},
    OptionKind.FLAG: {"type": "boolean"},
    OptionKind.INTEGER: {"type": "integer"},
    OptionKind.COUNT: _COUNT,
    OptionKind.LENGTH: {"anyOf": [_COUNT, {"const": AUTO}]},
    OptionKind.NUMBER: {"type": "number"},
    OptionKind.JSON: {"type": ["object", "array"]},
    OptionKind.OBJECT: {"type": "object"},
    OptionKind.TEXT_OR_JSON: {"type": ["string", "object"]},
    OptionKind.TEXT_OR_FLAG: {"anyOf": [{"type": "string"}, {"const": True}]},
}


def arguments_schema(vllm: PinnedVllm) -> Schema:
    """What `engine.vllm.args` may hold."""
    free = {name: option for name, option in vllm.options.items() if owner_of(name) is None and not option.deprecated}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: _property(option) for name, option in sorted(free.items())}
        | {"load-format": {"enum": list(LOADERS), "default": next(iter(LOADERS))}},
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
    if option.kind is OptionKind.FLAG and not option.negatable:
        return {"const": True}
    if option.fields:
        return {"type": "object", "propertyNames": {"enum": list(option.fields)}}
    return _KINDS[option.kind]


RUNS_CODE = frozenset(
    {
        *("middleware", "tool-parser-plugin", "reasoning-parser-plugin", "io-processor-plugin", "logits-processors"),
        *("worker-cls", "worker-extension-cls", "scheduler-cls", "model-class-overrides", "log-config-file"),
        *("distributed-executor-backend",),
    }
)
"""Each names a class, a module or a file that the engine imports."""

UNPROVEN = frozenset({"lora-modules", "default-mm-loras"})
"""Each brings weights that are no part of the model version."""

REVEALS = frozenset(
    {
        *("allowed-local-media-path", "otlp-traces-endpoint", "enable-log-outputs", "trust-request-chat-template"),
        *("trust-request-mm-kwargs",),
    }
)
"""Files of the machine, or what users and the model said, for others to read; or code of a request that is run."""

WITHIN = {
    "kv-transfer-config": ("kv_connector_module_path",),
    "ec-transfer-config": ("ec_connector_module_path",),
    "kv-events-config": ("endpoint", "replay_endpoint"),
    "speculative-config": ("model",),
    "structured-outputs-config": ("reasoning_parser_plugin",),
    "reasoning-config": ("reasoning_parser_plugin",),
    "compilation-config": ("backend", "inductor_passes", "inductor_compile_config"),
    "profiler-config": ("torch_profiler_dir",),
}
"""The same within arguments that are mappings."""

PLAIN = {"distributed-executor-backend": ("ray", "mp", "uni", "external_launcher"), "compilation-config": ("inductor",)}
"""Values that name nothing of anybody's: vLLM's own."""


def external_references(args: Arguments) -> Iterator[tuple[str, str]]:
    """Each argument that loads or reveals something, as a spec writes it, and what it names."""
    for name, value in args.items():
        if name in RUNS_CODE | UNPROVEN | REVEALS:
            yield from ((name, named) for named in _named(value) if named not in PLAIN.get(name, ()))
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if key.replace("-", "_") in WITHIN.get(name, ()):
                    yield from ((f"{name}.{key}", named) for named in _named(inner) if named not in PLAIN.get(name, ()))


def _named(value: JsonValue) -> Iterator[str]:
    """What a value names; nothing where it switches the argument off."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _named(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _named(inner)
    elif value not in (None, False, ""):
        yield str(value).lower() if value is True else str(value)
