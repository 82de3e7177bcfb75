"""Arguments that are right alone and that vLLM 0.32 refuses, or ignores in silence, together.

Each rule names where vLLM says so. What only the model's own configuration can tell is in `checks/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from engine_images.arguments.serving import ONLINE, SHORTHANDS, Serving, serving
from engine_images.arguments.values import Arguments, read_count

_ASYNCHRONOUS = frozenset({"ngram_gpu", "draft_model", "dspark", "dflash", "eagle", "eagle3", "extract_hidden_states"})
"""Methods of speculation that async scheduling knows, besides every `..._mtp`."""

_TOLD_HOW_MANY = frozenset({"ngram", "ngram_gpu", "draft_model"})
"""Methods of speculation whose number of tokens stands in no model's configuration."""

NEEDS = {
    "enable-auto-tool-choice": "tool-call-parser",
    "enable-log-outputs": "enable-log-requests",
    "enable-eplb": "enable-expert-parallel",
    "numa-bind-nodes": "numa-bind",
    "numa-bind-cpus": "numa-bind",
    "lora-modules": "enable-lora",
}
"""Refused without the other; of `lora-modules`, which fail at start only, vLLM's server says so last."""

EXCLUDES = {
    "enable-per-request-metrics": "disable-log-stats",
    "data-parallel-hybrid-lb": "data-parallel-external-lb",
    "kv-cache-memory-bytes": "gpu-memory-utilization",
}
"""Refused with the other; of the last pair the second is ignored in silence."""

AT_MOST = (
    ("max-num-seqs", "max-num-batched-tokens"),
    ("max-num-active-seqs", "max-num-seqs"),
    ("long-prefill-token-threshold", "max-model-len"),
    ("max-loras", "max-cpu-loras"),
    ("data-parallel-size-local", "data-parallel-size"),
)
"""Pairs of which the first must not be larger: SchedulerConfig.verify_max_model_len, LoRAConfig, ParallelConfig."""


@dataclass(frozen=True)
class ArgumentConflict:
    """An argument at odds with another one."""

    name: str
    found: str
    expected: str


def argument_conflicts(args: Arguments) -> Iterator[ArgumentConflict]:
    """Every contradiction among arguments that are right alone."""
    yield from _pairs(args)
    wanted = serving(args)
    for rule in _RULES:
        yield from rule(args, wanted)


def _pairs(args: Arguments) -> Iterator[ArgumentConflict]:
    for name, needed in NEEDS.items():
        if args.get(name, False) is not False and args.get(needed, False) is False:
            yield ArgumentConflict(name, f"{name} without {needed}", f"{needed} too")
    for name, other in EXCLUDES.items():
        if args.get(name, False) is not False and args.get(other, False) is not False:
            yield ArgumentConflict(other, f"{other} together with {name}", "one of the two")
    for smaller, larger in AT_MOST:
        few, many = read_count(args.get(smaller)), read_count(args.get(larger))
        if few is not None and many is not None and few > many:
            yield ArgumentConflict(smaller, f"{few}, more than {larger} ({many})", f"at most {many}")


def _prefill(_: Arguments, wanted: Serving) -> Iterator[ArgumentConflict]:
    """SchedulerConfig.verify_max_model_len."""
    tokens, length = wanted.max_num_batched_tokens, wanted.max_model_len
    if wanted.chunked_prefill is False and tokens is not None and length is not None and tokens < length:
        yield ArgumentConflict(
            "max-num-batched-tokens",
            f"{tokens}, less than max-model-len ({length}) without chunked prefill: longer prompts are never read",
            f"at least {length}, or enable-chunked-prefill: true",
        )


def _speculation(args: Arguments, wanted: Serving) -> Iterator[ArgumentConflict]:
    """EngineArgs.create_speculative_config, VllmConfig._validate_adaptive_verification and its __post_init__."""
    speculation = wanted.speculation
    if speculation is None:
        if args.get("per-request-spec-decode-metrics", "none") != "none":
            yield ArgumentConflict(
                "per-request-spec-decode-metrics", "metrics of speculation without it", "speculative-config too"
            )
        return
    given = args.get("speculative-config")
    for argument, key in SHORTHANDS.items():
        if argument in args and isinstance(given, dict) and key in given:
            yield ArgumentConflict(argument, f"{argument} next to speculative-config.{key}", "one of the two")
    where = "speculative-config" if "speculative-config" in args else "spec-method"
    if speculation.adaptive and wanted.parallel.pipeline > 1:
        yield ArgumentConflict(where, "adaptive verification with pipeline parallelism", "pipeline-parallel-size: 1")
    if speculation.adaptive and wanted.lora_enabled:
        yield ArgumentConflict(where, "adaptive verification with LoRA", "one of the two")
    method = speculation.method
    if method in _TOLD_HOW_MANY and speculation.tokens is None:
        yield ArgumentConflict(where, f"{method} without a number of tokens", "num_speculative_tokens too")
    if args.get("async-scheduling") is True and method and method not in _ASYNCHRONOUS and not method.endswith("mtp"):
        yield ArgumentConflict(
            "async-scheduling", f"async scheduling with speculation by {method}", "async-scheduling: false"
        )


def _adapters(_: Arguments, wanted: Serving) -> Iterator[ArgumentConflict]:
    """LoRAModulePath; two adapters of one name are one model to its users."""
    names = [adapter.name for adapter in wanted.lora]
    for adapter in wanted.lora:
        if not adapter.name or not adapter.path:
            yield ArgumentConflict(
                "lora-modules", f"{adapter.name or adapter.path or 'an empty one'}", "{name: ..., path: ...}"
            )
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield ArgumentConflict("lora-modules", f"two adapters with the name {name}", "each name once")


def _experts(args: Arguments, wanted: Serving) -> Iterator[ArgumentConflict]:
    """ParallelConfig._validate_parallel_config."""
    parallel = wanted.parallel
    if args.get("enable-eplb") is True and parallel.tensor * parallel.data * parallel.prefill_context == 1:
        yield ArgumentConflict(
            "enable-eplb", "experts balanced over one rank", "tensor-parallel-size or data-parallel-size above 1"
        )


def _precision(_: Arguments, wanted: Serving) -> Iterator[ArgumentConflict]:
    """Each quantization method's `get_supported_act_dtypes`: 16 bits for all that quantize while loading."""
    if wanted.quantization in ONLINE and wanted.dtype in ("float32", "float"):
        yield ArgumentConflict(
            "dtype", f"{wanted.dtype} with quantization {wanted.quantization}", "bfloat16 or float16"
        )


def _sizes(args: Arguments, _: Serving) -> Iterator[ArgumentConflict]:
    for name in ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size", "max-num-seqs"):
        if args.get(name) == 0:
            yield ArgumentConflict(name, "0", "at least 1")
    share = args.get("gpu-memory-utilization")
    if isinstance(share, int | float) and not 0 < share <= 1:
        yield ArgumentConflict("gpu-memory-utilization", str(share), "a share above 0 and at most 1")


_RULES: tuple[Callable[[Arguments, Serving], Iterator[ArgumentConflict]], ...] = (
    _prefill,
    _speculation,
    _adapters,
    _experts,
    _precision,
    _sizes,
)
