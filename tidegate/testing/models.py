"""A language model of 1.4 MB that a real vLLM serves in seconds.

It talks nonsense, but always the same. It is written without torch, which tidegate's own environment does not have.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, HEAD = 2, 128, 256, 4, 2, 32
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def write_tiny_model(folder: Path, *, seed: int = 0) -> Path:
    """Write `folder/model/`, a Hugging Face directory of a two-layer Llama; returns it.

    The same seed gives the same bytes.
    """
    target = folder / "model"
    target.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer()
    vocabulary = tokenizer.get_vocab()
    tokenizer.save(str(target / "tokenizer.json"))
    save_file(_weights(seed, vocabulary), target / "model.safetensors", metadata={"format": "pt"})
    _write_json(target / "config.json", _config(len(vocabulary)))
    _write_json(target / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2})
    _write_json(target / "tokenizer_config.json", _tokenizer_config())
    (target / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    return target


def _tokenizer() -> Tokenizer:
    """One token a byte: byte-level BPE without merges."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate((*SPECIAL, *alphabet))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    return tokenizer


def _weights(seed: int, vocabulary: dict[str, int]) -> dict[str, NDArray[np.float32]]:
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int, scale: float = 1.0) -> NDArray[np.float32]:
        scaled = random.standard_normal((rows, columns)) * scale / np.sqrt(columns)
        return np.asarray(scaled, dtype=np.float32)

    ones = np.ones(HIDDEN, dtype=np.float32)
    # 1 for tokens that may be the likeliest, 0 for those that never are.
    printable = [[len(token) == 1 and "!" <= token <= "~"] for token in sorted(vocabulary, key=vocabulary.__getitem__)]
    weights = {
        "model.embed_tokens.weight": matrix(len(vocabulary), HIDDEN, np.sqrt(HIDDEN)),
        "model.norm.weight": ones,
        # Far apart logits: the likeliest token does not depend on how a sum was ordered.
        "lm_head.weight": matrix(len(vocabulary), HIDDEN, 8.0) * np.array(printable, dtype=np.float32),
    }
    shapes = {
        "self_attn.q_proj": (HEADS * HEAD, HIDDEN),
        "self_attn.k_proj": (KV_HEADS * HEAD, HIDDEN),
        "self_attn.v_proj": (KV_HEADS * HEAD, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HEADS * HEAD),
        "mlp.gate_proj": (INNER, HIDDEN),
        "mlp.up_proj": (INNER, HIDDEN),
        "mlp.down_proj": (HIDDEN, INNER),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        weights |= {f"{prefix}.{name}.weight": matrix(*shape) for name, shape in shapes.items()}
        weights |= {f"{prefix}.{name}.weight": ones for name in ("input_layernorm", "post_attention_layernorm")}
    return weights


def _config(vocabulary_size: int) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocabulary_size,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD,
        "hidden_act": "silu",
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
        "dtype": "float32",
    }


def _tokenizer_config() -> dict[str, object]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[1],
        "eos_token": SPECIAL[2],
        "pad_token": SPECIAL[2],
        "unk_token": SPECIAL[0],
        "model_max_length": 2048,
        "clean_up_tokenization_spaces": False,
    }


def _write_json(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
