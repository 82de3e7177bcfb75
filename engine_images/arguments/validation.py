"""Which arguments a spec may set: every problem with them at once, and their JSON schema for editors.

Three kinds are refused or restricted: what this vLLM does not know, what follows from something else in the delivery,
and what is not among the harmless (`ALLOWED`). Where a spec comes from a pull request, an argument that loads code or
reads files would run on GPU nodes what nobody reviewed; who operates the machines may allow each by name and value.
"""

from __future__ import annotations

import json
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


ALLOWED = frozenset(
    {
        # Precision and lengths.
        *("dtype", "seed", "max-model-len", "quantization", "allow-deprecated-quantization", "load-format"),
        *("quantization-config.ignore", "quantization-config.linear", "quantization-config.moe"),
        *("quantization-config.targets", "runner", "convert", "max-logprobs", "logprobs-mode"),
        *("disable-sliding-window", "disable-cascade-attn"),
        # Parallelism within the pods that the spec describes.
        *("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size", "data-parallel-size-local"),
        *("prefill-context-parallel-size", "decode-context-parallel-size", "dcp-comm-backend", "dcp-q-replicate"),
        *("dcp-kv-cache-interleave-size", "cp-kv-cache-interleave-size", "enable-expert-parallel", "enable-eplb"),
        *("expert-placement-strategy", "all2all-backend", "enable-dbo", "dbo-decode-token-threshold"),
        *("dbo-prefill-token-threshold", "ubatch-size", "disable-custom-all-reduce", "max-parallel-loading-workers"),
        *("distributed-executor-backend: mp", "distributed-executor-backend: uni"),
        # Memory and caches.
        *("gpu-memory-utilization", "kv-cache-memory-bytes", "kv-cache-dtype", "block-size", "num-gpu-blocks-override"),
        *("enable-prefix-caching", "prefix-caching-hash-algo", "prefix-cache-retention-interval", "cpu-offload-gb"),
        *("kv-offloading-size", "offload-backend", "offload-group-size", "offload-num-in-group"),
        *("offload-prefetch-step", "mamba-cache-dtype", "mamba-ssm-cache-dtype", "mamba-block-size"),
        *("mamba-cache-mode", "enable-sleep-mode", "safetensors-load-strategy", "safetensors-prefetch-num-threads"),
        *("safetensors-prefetch-block-size", "model-loader-extra-config.distributed"),
        *("model-loader-extra-config.concurrency", "model-loader-extra-config.memory_limit", "use-tqdm-on-load"),
        # Scheduling.
        *("max-num-seqs", "max-num-active-seqs", "max-num-batched-tokens", "max-num-scheduled-tokens"),
        *("max-num-queued-reqs", "max-num-queued-tokens", "long-prefill-token-threshold"),
        *("long-prefill-token-threshold-adaptive", "scheduling-policy", "enable-chunked-prefill"),
        *("disable-chunked-mm-input", "scheduler-reserve-full-isl", "prefill-schedule-interval"),
        *("disable-hybrid-kv-cache-manager", "async-scheduling", "stream-interval", "watermark"),
        # Kernels, graphs and speculation without a second model.
        *("performance-mode", "optimization-level", "attention-backend", "moe-backend", "linear-backend"),
        *("enable-flashinfer-autotune", "cudagraph-capture-sizes", "max-cudagraph-capture-size"),
        *("compilation-config.mode", "compilation-config.cudagraph_mode", "compilation-config.backend: inductor"),
        *("compilation-config.cudagraph_capture_sizes", "compilation-config.max_cudagraph_capture_size"),
        *("speculative-config.method: ngram", "speculative-config.method: ngram_gpu", "speculative-config.method: mtp"),
        *("speculative-config.num_speculative_tokens", "speculative-config.prompt_lookup_min"),
        *("speculative-config.prompt_lookup_max", "per-request-spec-decode-metrics"),
        # Adapters, of which each brings weights that the operator allows, and pictures.
        *("enable-lora", "max-loras", "max-lora-rank", "max-cpu-loras", "lora-dtype", "fully-sharded-loras"),
        *("limit-mm-per-prompt.image", "limit-mm-per-prompt.video", "limit-mm-per-prompt.audio"),
        *("language-model-only", "interleave-mm-strings", "skip-mm-profiling", "mm-processor-cache-gb"),
        *("mm-processor-cache-type", "mm-shm-cache-max-object-size-mb", "mm-processor-device", "mm-encoder-tp-mode"),
        # Answers and metrics.
        *("enable-auto-tool-choice", "tool-call-parser", "tool-strict-level", "exclude-tools-when-tool-choice-none"),
        *("reasoning-parser", "chat-template-content-format", "return-tokens-as-token-ids"),
        *("structured-outputs-config.backend", "structured-outputs-config.disable_any_whitespace"),
        *("structured-outputs-config.disable_additional_properties", "structured-outputs-config.enable_in_reasoning"),
        *("enable-prompt-tokens-details", "enable-force-include-usage", "enable-request-id-headers"),
        *("enable-server-load-tracking", "disable-fastapi-docs", "disable-uvicorn-access-log"),
        *("disable-log-stats", "enable-per-request-metrics", "kv-cache-metrics", "kv-cache-metrics-sample"),
        *("cudagraph-metrics", "enable-mfu-metrics", "custom-histogram-buckets.time_to_first_token"),
        *("custom-histogram-buckets.inter_token_latency", "custom-histogram-buckets.request_latency"),
    }
)
"""What a spec may set by itself: arguments that name no path, address, module or command, and show nobody's words.

`NAME.KEY` is a key of an argument that is a mapping, `NAME: VALUE` the one value of an argument that may name a module
or a model otherwise. Texts are names that vLLM looks up among its own. Anything else needs the operator.
"""


def external_references(args: Arguments) -> Iterator[tuple[str, str]]:
    """Each argument beyond `ALLOWED`, as the operator writes it, and each value that it has."""
    for name, value in args.items():
        keys = {f"{name}.{key}": inner for key, inner in value.items()} if isinstance(value, Mapping) else {}
        for argument, said in (keys or {name: value}).items():
            if argument not in ALLOWED:
                yield from ((argument, one) for one in _leaves(said) if f"{argument}: {one}" not in ALLOWED)


def _leaves(value: JsonValue) -> Iterator[str]:
    """The texts, numbers and flags in a value; it as a whole where it holds none."""
    inner = list(value.values()) if isinstance(value, dict) else value
    if isinstance(inner, list | tuple) and inner:
        for each in inner:
            yield from _leaves(each)
    else:
        yield value if isinstance(value, str) else json.dumps(value)
