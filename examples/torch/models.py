"""Modules for `engine.torch` of a spec: random weights, so they talk nonsense, at the speed of real ones.

engine: {torch: {factory: models.py:encoder, shapes: [1x64, 8x128]}}
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

Inputs = Callable[[int, int], dict[str, torch.Tensor]]
VOCABULARY = 32000


class Block(nn.Module):
    """Attention and a feed-forward part, written out: torch's own layer hides them from the compiler."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_inner = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.before_attention(x)).chunk(3, dim=-1)
        )
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.before_inner(x))))


class Encoder(nn.Module):
    """A transformer that reads a text and scores it: 6 layers of 384, 23 million parameters."""

    def __init__(self, classes: int = 8, width: int = 384, layers: int = 6) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.layers = nn.Sequential(*(Block(width, heads=6) for _ in range(layers)))
        self.head = nn.Linear(width, classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits of each class."""
        return self.head(self.layers(self.tokens(tokens)).mean(dim=1))


def encoder() -> tuple[nn.Module, Inputs]:
    """The encoder, and texts of any batch and length."""
    return Encoder(), lambda batch, length: {"tokens": torch.randint(0, VOCABULARY, (batch, length))}


def smollm2() -> tuple[nn.Module, Inputs]:
    """A Llama of SmolLM2-135M's size, by transformers: one forward pass over whole prompts, without a KV cache."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        use_cache=False,
    )
    return LlamaForCausalLM(config), lambda batch, length: {
        "input_ids": torch.randint(0, config.vocab_size, (batch, length))
    }
