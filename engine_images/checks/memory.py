"""Whether the version fits into its accelerators' memory, and the smallest changes with which it would."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from engine_images.accelerators import GIBIBYTE, MEBIBYTE, Accelerator
from engine_images.arguments.serving import Serving
from engine_images.checks.files import ARGS, Obstacle
from engine_images.memory import Footprint
from engine_images.spec import EngineSettings

STEP = 256
"""Lengths are proposed in multiples of it."""

Measure = Callable[[Serving, int], Footprint]
"""What other settings, and another greatest length, would need."""


def room_obstacles(
    settings: EngineSettings, wanted: Serving, *, heads: int, tokens: int, measure: Measure
) -> Iterator[Obstacle]:
    """One obstacle when the accelerator is too small, one when the KV cache is too small for a single answer.

    Args:
        settings: of the engine.
        wanted: the same as vLLM is told.
        heads: of attention, among which tensor parallelism divides.
        tokens: of the longest answer.
        measure: counts.
    """
    now = measure(wanted, tokens)
    if now.cache is not None and now.answer > now.cache:
        shorter = _longest(lambda length: measure(wanted, length).answer <= (now.cache or 0), tokens)
        yield Obstacle(
            where=f"{ARGS}.kv-cache-memory-bytes",
            found=f"{readable_bytes(now.cache)}, but one answer of {tokens} tokens takes {readable_bytes(now.answer)}",
            expected=f"{now.answer} or more" + (f", or max-model-len: {shorter}" if shorter else ""),
        )
    if now.missing > 0:
        shorter = _longest(lambda length: measure(wanted, length).missing <= 0, tokens)
        cut = None if settings.accelerator is Accelerator.CPU else _cut(wanted, heads, tokens, measure)
        would_do = [cut] if cut else []
        if shorter:
            would_do.append(f"max-model-len: {shorter}")
        kind = "machine" if settings.accelerator is Accelerator.CPU else "larger accelerator"
        yield Obstacle(
            where="engine.accelerator",
            found=_sum(now, settings, tokens),
            expected=" or ".join(would_do) or f"a {kind} with {readable_bytes(now.needed)} for this engine",
        )


def _sum(now: Footprint, settings: EngineSettings, tokens: int) -> str:
    cache = (
        f"KV cache {readable_bytes(now.cache)}"
        if now.cache and now.cache >= now.answer
        else f"KV cache of one answer of {tokens} tokens {readable_bytes(now.answer)}"
    )
    return (
        f"{readable_bytes(now.needed)} for each {settings.accelerator} "
        f"(weights {readable_bytes(now.weights)}, {cache}, reserve {readable_bytes(now.reserve)}), "
        f"{readable_bytes(now.missing)} more than the {readable_bytes(now.available)} that an engine may take"
    )


def _cut(wanted: Serving, heads: int, tokens: int, measure: Measure) -> str | None:
    """The smallest number of parts, a power of two times what there is, into which the model can be cut and fits."""
    for factor in (2, 4, 8, 16):
        cut = wanted.model_copy(update={"tensor": wanted.tensor * factor})
        if heads % cut.tensor == 0 and measure(cut, tokens).missing <= 0:
            return f"tensor-parallel-size: {cut.tensor} and accelerator_count: {cut.accelerators}"
    return None


def _longest(fits: Callable[[int], bool], tokens: int) -> int | None:
    """The greatest length below `tokens` that fits, in whole steps; None when not even one step does."""
    low, high = 0, (tokens - 1) // STEP
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle * STEP) else (low, middle - 1)
    return low * STEP if low else None


def readable_bytes(count: int) -> str:
    """Bytes for a person."""
    return f"{count / GIBIBYTE:.1f} GiB" if count >= GIBIBYTE else f"{count / MEBIBYTE:.0f} MiB"
