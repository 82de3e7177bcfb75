"""The arguments that tidegate itself reasons about, in types: parallelism, lengths, memory, adapters, quantization."""

from __future__ import annotations

from math import prod
from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue

from engine_images.arguments.values import AUTO, KV_CACHE, UTILIZATION, Arguments, read_count
from tidegate.core.model import Value

ONLINE = {
    "fp8": 1.0,
    "fp8_per_tensor": 1.0,
    "fp8_per_block": 1.0,
    "fp8_per_channel": 1.0,
    "int8_per_channel_weight_only": 1.0,
    "experts_int8": 1.0,
    "mxfp8": 1.03,
    "nvfp4_per_token": 0.5625,
}
"""Methods that quantize weights stored in 16 bits while they are loaded, and what is left of each number, in bytes;
the scales of the last two included."""

LOADERS = ("safetensors", "runai_streamer", "fastsafetensors")
"""Values of `load-format` that read safetensors and nothing else: the others may unpickle what a model version brings.
vLLM needs a package for each but the first, and says so when it starts."""
DEFAULT_MEMORY_UTILIZATION = 0.92
"""The share of a GPU's memory that vLLM 0.32 takes."""


def _adapters(value: JsonValue) -> tuple[tuple[str, str], ...]:
    """As vLLM reads them: `name=path`, or a mapping."""
    found = []
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str):
            name, _, path = item.partition("=")
            found.append((name, path))
        elif isinstance(item, dict):
            found.append((str(item.get("name", "")), str(item.get("path", ""))))
    return tuple(found)


Count = Annotated[int | None, BeforeValidator(read_count)]
Parts = Annotated[int, BeforeValidator(lambda value: read_count(value) or 1)]
Text = Annotated[str | None, BeforeValidator(lambda value: value if isinstance(value, str) else None)]
Kind = Annotated[str, BeforeValidator(lambda value: value if isinstance(value, str) else AUTO)]
Number = Annotated[float, BeforeValidator(lambda value: float(value) if isinstance(value, int | float) else None)]


class Serving(Value):
    """The arguments in types, by their names on the command line; None where vLLM finds the value out itself."""

    model_config = ConfigDict(extra="ignore")

    tensor: Parts = Field(1, alias="tensor-parallel-size")
    """Each layer is cut into so many parts."""
    pipeline: Parts = Field(1, alias="pipeline-parallel-size")
    """The layers are dealt out to so many stages."""
    data: Parts = Field(1, alias="data-parallel-size")
    """So many copies of the model, behind one address."""
    prefill_context: Parts = Field(1, alias="prefill-context-parallel-size")
    """A long prompt is read by so many ranks at once."""
    dtype: Kind = Field(AUTO, alias="dtype")
    quantization: Text = Field(None, alias="quantization")
    max_model_len: Count = Field(None, alias="max-model-len")
    """None also for `auto`."""
    length_fits: bool
    """vLLM takes the greatest length that fits into memory: `max-model-len: auto`."""
    max_num_batched_tokens: Count = Field(None, alias="max-num-batched-tokens")
    max_num_seqs: Count = Field(None, alias="max-num-seqs")
    load_format: Text = Field(None, alias="load-format")
    """One of `LOADERS`; None where the spec does not say."""
    kv_cache_dtype: Kind = Field(AUTO, alias="kv-cache-dtype")
    kv_cache_bytes: Count = Field(None, alias=KV_CACHE)
    memory_utilization: Number = Field(DEFAULT_MEMORY_UTILIZATION, alias=UTILIZATION)
    cpu_offload_gib: Number = Field(0, alias="cpu-offload-gb")
    block_size: Count = Field(None, alias="block-size")
    lora: Annotated[tuple[tuple[str, str], ...], BeforeValidator(_adapters)] = Field((), alias="lora-modules")
    """Name and path of each adapter that is loaded at start."""
    draft: str | None
    """Where the model is that guesses tokens for it."""

    @property
    def accelerators(self) -> int:
        """How many accelerators an engine takes."""
        return prod((self.tensor, self.pipeline, self.data, self.prefill_context))


def serving(args: Arguments) -> Serving:
    """The arguments in types; they must have been checked."""
    return Serving.model_validate({**args, "draft": _draft(args), "length_fits": args.get("max-model-len") == AUTO})


_DRAFTLESS = ("ngram", "ngram_gpu", "suffix", "extract_hidden_states", "custom_class")
"""Methods of speculation that have no model."""


def _draft(args: Arguments) -> str | None:
    given = args.get("speculative-config")
    config = given if isinstance(given, dict) else {}
    draft = config.get("model", args.get("spec-model"))
    method = config.get("method", args.get("spec-method"))
    return draft if isinstance(draft, str) and method not in _DRAFTLESS else None
