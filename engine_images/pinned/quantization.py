"""Methods that quantize a model while it is loaded, as `vllm/config/quantization.py` of vLLM 0.32 has them."""

from __future__ import annotations

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
