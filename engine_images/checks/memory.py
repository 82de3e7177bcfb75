"""Whether the version fits into its accelerators' memory, and the smallest changes with which it would."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from engine_images.accelerators import DEVICES, GIBIBYTE, MEBIBYTE, Accelerator
from engine_images.arguments.serving import Parallel, Serving
from engine_images.checks.files import ARGS, Obstacle
from engine_images.choices import CompileMode
from engine_images.memory import FLOATS, Footprint, Model, footprint
from engine_images.spec import EngineSettings

STEP = 256
"""Lengths are proposed in multiples of it."""

Measure = Callable[[Serving, int], Footprint]
"""What other settings, and another greatest length, would need."""


def room_obstacles(
    model: Model, settings: EngineSettings, wanted: Serving, *, tokens: int, machine_bytes: int
) -> Iterator[Obstacle]:
    """One obstacle when the accelerator is too small, one when the KV cache is too small for a single answer."""

    def measure(other: Serving, length: int) -> Footprint:
        eager = settings.compile.mode is CompileMode.NONE
        return footprint(model, other, settings.accelerator, tokens=length, eager=eager, machine_bytes=machine_bytes)

    now = measure(wanted, tokens)
    if now.cache is not None and now.answer > now.cache:
        shorter = _longest(lambda length: measure(wanted, length).answer <= (now.cache or 0), tokens)
        yield Obstacle(
            where=f"{ARGS}.kv-cache-memory-bytes",
            found=f"{readable_bytes(now.cache)}, but one answer of {tokens} tokens takes {readable_bytes(now.answer)}",
            expected=f"{now.answer} or more" + (f", or max-model-len: {shorter}" if shorter else ""),
        )
    if now.missing > 0:
        yield Obstacle(
            where="engine.accelerator",
            found=_sum(now, settings, tokens),
            expected=" or ".join(_remedies(model, settings, wanted, tokens, measure)) or _larger(now, settings),
        )


def _sum(now: Footprint, settings: EngineSettings, tokens: int) -> str:
    cache = (
        f"KV cache {readable_bytes(now.cache)}"
        if now.cache and now.cache >= now.answer
        else f"KV cache of one answer of {tokens} tokens {readable_bytes(now.answer)}"
    )
    parts = [f"weights {readable_bytes(now.weights)}", cache]
    rest = {
        "activations": now.activations,
        "sampling": now.sampling,
        "CUDA graphs": now.graphs,
        "collectives": now.collectives,
        "process": now.process,
    }
    parts += [f"{name} {readable_bytes(value)}" for name, value in rest.items() if value]
    return (
        f"{readable_bytes(now.needed)} for each {settings.accelerator} ({', '.join(parts)}), "
        f"{readable_bytes(now.missing)} more than the {readable_bytes(now.available)} that an engine may take"
    )


def _larger(now: Footprint, settings: EngineSettings) -> str:
    kind = "machine" if settings.accelerator is Accelerator.CPU else "larger accelerator"
    return f"a {kind} with {readable_bytes(now.needed)} for this engine"


def _remedies(model: Model, settings: EngineSettings, wanted: Serving, tokens: int, measure: Measure) -> Iterator[str]:
    """Each found by counting again; the smallest change of each kind that is enough."""

    def fits(other: Serving) -> bool:
        return measure(other, tokens).missing <= 0

    if settings.accelerator is not Accelerator.CPU:
        cut = _cut(model, wanted, fits)
        if cut:
            yield _said(cut)
        eight = wanted.model_copy(update={"quantization": "fp8"})
        can_be_narrowed = wanted.quantization is None and _is_stored_wide(model)
        if DEVICES[settings.accelerator].fp8 and can_be_narrowed:
            narrow = wanted.parallel if fits(eight) else _cut(model, eight, fits)
            if narrow == wanted.parallel:
                yield "quantization: fp8"
            elif narrow and (cut is None or narrow.accelerators < cut.accelerators):
                yield f"quantization: fp8 with {_said(narrow)}"
    shorter = _longest(lambda length: measure(wanted, length).missing <= 0, tokens)
    if shorter:
        yield f"max-model-len: {shorter}"


def _cut(model: Model, wanted: Serving, fits: Callable[[Serving], bool]) -> Parallel | None:
    """The smallest number of parts, a power of two times what there is, into which the model can be cut and fits."""
    for factor in (2, 4, 8, 16):
        parallel = wanted.parallel.model_copy(update={"tensor": wanted.parallel.tensor * factor})
        if model.shape.heads % parallel.tensor == 0 and fits(wanted.model_copy(update={"parallel": parallel})):
            return parallel
    return None


def _said(parallel: Parallel) -> str:
    return f"tensor-parallel-size: {parallel.tensor} and accelerator_count: {parallel.accelerators}"


def _longest(fits: Callable[[int], bool], tokens: int) -> int | None:
    """The greatest length below `tokens` that fits, in whole steps; None when not even one step does."""
    low, high = 0, (tokens - 1) // STEP
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle * STEP) else (low, middle - 1)
    return low * STEP if low else None


def _is_stored_wide(model: Model) -> bool:
    return all(tensor.dtype in FLOATS for tensor in model.tensors)


def readable_bytes(count: int) -> str:
    """Bytes for a person."""
    return f"{count / GIBIBYTE:.1f} GiB" if count >= GIBIBYTE else f"{count / MEBIBYTE:.0f} MiB"
