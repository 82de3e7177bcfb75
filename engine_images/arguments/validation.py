"""Which arguments a spec may set: every problem with them at once, and their JSON schema for editors.

Refused is what follows from something else in the delivery, and what tidegate cannot reason about because it has
another type or name; what is not among the harmless (`ALLOWED`) is restricted. Where a spec comes from a pull request,
an argument that loads code or reads files would run on GPU nodes what nobody reviewed; who operates the machines may
allow each by name and value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from engine_images.arguments.serving import LOADERS
from engine_images.arguments.values import KIND_OF, Arguments, complaint, schema_of

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

OTHER_NAMES = {"device-memory-utilization": "gpu-memory-utilization"}
"""What vLLM takes for an argument that tidegate reasons about, besides the beginnings of its name."""

_OWNERS = {argument: owner for owner, arguments in RESERVED.items() for argument in arguments}


def owner_of(name: str) -> str | None:
    """What the argument `name`, its negation, or what vLLM completes it to follows from; None for what a spec may set.

    argparse takes `--por` for `--port`.
    """
    written = name.removeprefix("no-")
    return next((owner for argument, owner in _OWNERS.items() if argument.startswith(written)), None)


_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass(frozen=True)
class WrongArgument:
    """One argument that vLLM, or tidegate, would not take."""

    name: str
    found: str
    expected: str


def wrong_arguments(args: Mapping[str, JsonValue]) -> Iterator[WrongArgument]:
    """Every argument that is wrong, as far as that is known without vLLM."""
    for name, value in args.items():
        if wrong := _wrong_name(name) or _unsafe_loader(name, value):
            yield wrong
        elif expected := complaint(name, value):
            yield WrongArgument(name, repr(value), expected)


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
        if name.startswith("no-"):
            return WrongArgument(name, repr(name), f"{name.removeprefix('no-')}: false")
        meant = OTHER_NAMES.get(name) or next((known for known in KIND_OF if known.startswith(name)), name)
        return None if name in KIND_OF or meant == name else WrongArgument(name, repr(name), meant)
    return WrongArgument(
        name, repr(name), f"an argument of vLLM that tidegate does not set itself; this one follows from the {owner}"
    )


_LOADER = "load-format"


def _unsafe_loader(name: str, value: JsonValue) -> WrongArgument | None:
    if not _LOADER.startswith(name) or (name == _LOADER and isinstance(value, str) and value in LOADERS):
        return None
    return WrongArgument(name, repr(value), f"one of {', '.join(LOADERS)}: no pickle of a model version is read")


def arguments_schema() -> dict[str, Any]:
    """What `engine.vllm.args` may hold, as far as that is known without vLLM."""
    known: dict[str, Any] = {name: schema_of(name) for name in KIND_OF}
    known[_LOADER] = {"enum": list(LOADERS), "default": LOADERS[0]}
    return {
        "type": "object",
        "properties": dict(sorted(known.items())) | dict.fromkeys(sorted(_OWNERS), False),
        "propertyNames": {"pattern": f"^{_NAME.pattern}$"},
    }


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
