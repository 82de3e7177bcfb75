"""Whether a saved cache does what it is for, and whether a compiled model is the eager one."""

from __future__ import annotations

from collections.abc import Iterator

from engine_images.manifest import CompileKey
from engine_images.torch_compile.model import Compiled, Run


def problems(compiled: Compiled, tolerance: float) -> tuple[str, ...]:
    """Why this must not be served; empty when it may. `tolerance` is the largest difference of an output."""
    return tuple(_problems(compiled, tolerance))


def _problems(compiled: Compiled, tolerance: float) -> Iterator[str]:
    runs = [("cold", compiled.cold), ("from the saved cache", compiled.cached)]
    for name, run in runs:
        if run is not None:
            yield from _disagreement(name, run, tolerance)
    yield from _missed(compiled)


def _disagreement(name: str, run: Run, tolerance: float) -> Iterator[str]:
    agreement = run.agreement
    if not agreement.same_weights:
        yield "the factory makes another model in every process: set its seed, or load its weights"
    elif not agreement.largest_difference <= tolerance:
        yield (
            f"{name}: compiled and eager outputs differ by up to {agreement.largest_difference:.3g}; "
            f"{tolerance:g} is accepted"
        )
    errors = sum(shape.errors for shape in run.shapes)
    if errors:
        yield f"{name}: {errors} of {sum(shape.calls for shape in run.shapes)} calls failed"


def _missed(compiled: Compiled) -> Iterator[str]:
    counters = compiled.cached.counters
    if counters.graph_misses or counters.graph_bypassed or not counters.graph_hits:
        why = "; ".join(_changed(compiled)) or "the keys are the same"
        missed = counters.graph_misses + counters.graph_bypassed
        yield f"the saved cache was missed: {missed} graphs compiled again, {counters.graph_hits} found ({why})"
    elif counters.kernels_built:
        yield f"the saved cache was found, but {counters.kernels_built} of its kernels were built again"


def _changed(compiled: Compiled) -> tuple[str, ...]:
    if compiled.cold is None:
        return ()
    return CompileKey(factors=compiled.cold.factors).differences(CompileKey(factors=compiled.cached.factors))
