"""What the files of large models would say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine_images.memory import Tensor

SMOLLM2: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": True,
}
LLAMA_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "bfloat16",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_scaling": {"factor": 8.0, "rope_type": "llama3", "original_max_position_embeddings": 8192},
}
LLAMA_70B = LLAMA_8B | {
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
}
MIXTURE: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "dtype": "bfloat16",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "head_dim": 128,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "num_experts": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
}
DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "dtype": "bfloat16",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
}


def tensors_of(config: dict[str, Any]) -> Iterator[Tensor]:
    """The tensors of a Llama, or of a mixture of experts built like one."""
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    yield _tensor("model.embed_tokens", vocabulary, hidden)
    yield _tensor("lm_head", vocabulary, hidden)
    yield _tensor("model.norm", hidden)
    for layer in range(config["num_hidden_layers"]):
        yield from _layer(config, f"model.layers.{layer}")


def _layer(config: dict[str, Any], name: str) -> Iterator[Tensor]:
    hidden = config["hidden_size"]
    head = config.get("head_dim", hidden // config["num_attention_heads"])
    queries, keys = head * config["num_attention_heads"], head * config["num_key_value_heads"]
    yield _tensor(f"{name}.self_attn.q_proj", queries, hidden)
    yield _tensor(f"{name}.self_attn.k_proj", keys, hidden)
    yield _tensor(f"{name}.self_attn.v_proj", keys, hidden)
    yield _tensor(f"{name}.self_attn.o_proj", hidden, queries)
    yield _tensor(f"{name}.input_layernorm", hidden)
    experts = config.get("num_experts", 0)
    if experts:
        yield _tensor(f"{name}.mlp.gate", experts, hidden)
    inner = config.get("moe_intermediate_size", config["intermediate_size"])
    for where in [f"{name}.mlp.experts.{number}" for number in range(experts)] or [f"{name}.mlp"]:
        yield _tensor(f"{where}.gate_proj", inner, hidden)
        yield _tensor(f"{where}.up_proj", inner, hidden)
        yield _tensor(f"{where}.down_proj", hidden, inner)


def _tensor(name: str, *shape: int) -> Tensor:
    return Tensor(f"{name}.weight", "BF16", shape)
