"""What a model's `config.json` says of its layers: enough to count the memory of its KV cache.

Follows vLLM 0.32's `ModelArchConfigConvertorBase`, for the families whose keys are the usual ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from tidegate.core.model import Value

JsonObject = Mapping[str, Any]
"""A configuration as its file has it."""

LENGTH_KEYS = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length"),
    *("max_target_positions", "max_sequence_length", "max_seq_length", "seq_len"),
)
"""Where configurations write the longest input they know; vLLM takes the smallest that is there."""

_KV_HEAD_KEYS = ("n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num", "num_attention_groups")
_STATE_LAYERS = frozenset({"linear_attention", "mamba", "mamba2", "recurrent", "conv"})
"""Kinds of layers that keep one state for an answer and nothing for each token."""

_SCALED_ALREADY = frozenset({"su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling"})
"""Kinds of RoPE scaling whose configurations name the length that they reach."""


class ModelShape(Value):
    """The sizes that decide how much an answer keeps in memory, and how a model can be cut."""

    layers: int
    heads: int
    kv_heads: int
    head_size: int
    hidden: int
    vocabulary: int
    latent: int | None = None
    """With multi-head latent attention: elements for a token and a layer, for all heads together."""
    window: int | None = None
    """Tokens that a layer with a sliding window looks back."""
    window_layers: int = 0
    state_layers: int = 0
    """Layers without a KV cache: Mamba, linear attention."""
    dtype: str | None = None


def text_config(config: JsonObject) -> JsonObject:
    """The part about the language model; a multimodal configuration has it one level down."""
    for key in ("text_config", "llm_config", "language_config"):
        if isinstance(config.get(key), dict):
            return {**{name: config[name] for name in ("dtype", "torch_dtype") if name in config}, **config[key]}
    return config


def shape_of(config: JsonObject) -> ModelShape:
    """Read the sizes; 0 stands for one that the configuration does not say."""
    text = text_config(config)
    heads = _number(text, "num_attention_heads", "n_head")
    hidden = _number(text, "hidden_size", "n_embd", "d_model")
    layers = _number(text, "num_hidden_layers", "n_layer")
    kinds = _layer_kinds(text, layers)
    return ModelShape(
        layers=layers,
        heads=heads,
        kv_heads=_number(text, *_KV_HEAD_KEYS) or heads,
        head_size=_number(text, "head_dim") or (hidden // heads if heads else 0),
        hidden=hidden,
        vocabulary=_number(text, "vocab_size"),
        latent=_latent(text),
        window=_number(text, "sliding_window") or None,
        window_layers=kinds.count("sliding_attention"),
        state_layers=sum(kind in _STATE_LAYERS for kind in kinds),
        dtype=_dtype(text),
    )


def longest_input(config: JsonObject, tokenizer_config: JsonObject) -> tuple[int, str] | None:
    """The most tokens that the model knows positions for, and the key that says so; None when nothing says it."""
    text = text_config(config)
    known = [(_number(text, key), key) for key in LENGTH_KEYS if _number(text, key)]
    if not known:
        return None
    length, key = (
        (_number(text, "model_max_length"), "model_max_length") if text.get("model_max_length") else min(known)
    )
    limit = tokenizer_config.get("model_max_length")
    if isinstance(limit, int | float) and limit < length:
        length, key = int(limit), "model_max_length of tokenizer_config.json"
    return int(length * _rope_factor(text)), key


def _rope_factor(text: JsonObject) -> float:
    rope = text.get("rope_parameters") or text.get("rope_scaling")
    if not isinstance(rope, dict) or "gemma3" in str(text.get("model_type")):
        return 1.0
    kind = rope.get("rope_type", rope.get("type", "default"))
    factor = rope.get("factor", 1.0)
    is_factor = isinstance(factor, int | float) and isfinite(factor) and factor > 0
    return float(factor) if is_factor and str(kind) not in _SCALED_ALREADY else 1.0


def _layer_kinds(text: JsonObject, layers: int) -> list[str]:
    kinds = text.get("layer_types")
    if isinstance(kinds, list):
        return [str(kind) for kind in kinds][:layers]
    # Without a list a window holds for every layer, unless the configuration switches it off.
    windowed = bool(text.get("sliding_window")) and text.get("use_sliding_window", True)
    return ["sliding_attention" if windowed else "full_attention"] * layers


def _latent(text: JsonObject) -> int | None:
    rank = _number(text, "kv_lora_rank")
    return rank + _number(text, "qk_rope_head_dim") if rank else None


def _dtype(text: JsonObject) -> str | None:
    said = text.get("dtype") or text.get("torch_dtype")
    return str(said).removeprefix("torch.") if said else None


def _number(text: JsonObject, *keys: str) -> int:
    """The first of these keys that holds a whole number, else 0."""
    values = (text.get(key) for key in keys)
    return next((value for value in values if isinstance(value, int) and not isinstance(value, bool)), 0)
