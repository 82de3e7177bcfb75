"""How much memory an engine will need, told from the headers of its weights before it is started."""

from __future__ import annotations

from engine_images.arguments.model import Arguments
from engine_images.arguments.serving import serving
from engine_images.model import Weights

MEBIBYTE = 1024 * 1024

PROCESS_BYTES = 1280 * MEBIBYTE
"""What vLLM 0.32 needs on a CPU beside weights and KV cache: measured 0.95 GiB with weights of 1.4 MB, and
1.27 GiB with weights of 0.5 GiB, where 0.25 GiB are pages of the file itself."""

DEFAULT_KV_CACHE_BYTES = 128 * MEBIBYTE
"""Small on purpose: a region runs two engines, and a machine several regions."""

BYTES_PER_DTYPE = {"float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2}
"""As in vLLM's `--dtype`; any other value (`auto`) keeps the weights as they are stored."""

_BITS_STORED = {"F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16}
FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
"""What vLLM converts to the dtype that it computes in."""


def estimate_memory(weights: Weights, args: Arguments) -> int:
    """Bytes that an engine with these weights and these arguments of vLLM is expected to need."""
    return PROCESS_BYTES + kv_cache_bytes(args) + weight_bytes(weights, str(args.get("dtype", "auto")))


def kv_cache_bytes(args: Arguments) -> int:
    """The size of the KV cache: as the spec says, or small enough for several engines on one machine."""
    return serving(args).kv_cache_bytes or DEFAULT_KV_CACHE_BYTES


def weight_bytes(weights: Weights, dtype: str) -> int:
    """Bytes of the weights once loaded: floats take the size of `dtype`, everything else stays as stored."""
    serving = BYTES_PER_DTYPE.get(dtype)
    return sum(count * element_size(stored, serving) for stored, count in weights.elements.items())


def element_size(stored: str, serving: int | None) -> int:
    """Bytes of one number that is stored as `stored` and, when it is a float, served in `serving` bytes."""
    if serving is not None and stored in FLOATS:
        return serving
    # What is not listed is 8 bits wide or packed into 8 bits: BOOL, I8, U8, F8_E4M3, ...
    return _BITS_STORED.get(stored, 8) // 8
