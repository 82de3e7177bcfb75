"""What a build has measured and proven, in words."""

from __future__ import annotations

from collections.abc import Iterator

from engine_images.build.model import BuildRecord, BuiltEngine
from tidegate.core.text import aligned, in_bytes


def in_lines(record: BuildRecord) -> Iterator[str]:
    """For a person."""
    starts = [("start", "seconds", "initialization", "memory")]
    for what, started in (("cold", record.cold), ("built", record.built), ("eager", record.eager)):
        if started:
            init = started.log.init_seconds
            told = "" if init is None else f"{init:.1f} s"
            starts.append((what, f"{started.seconds:.1f}", told, in_bytes(started.memory_bytes)))
    yield from aligned(starts)
    if agreement := record.agreement:
        yield (
            f"log-probabilities of {agreement.tokens:,} tokens differ from eager's by {agreement.largest:.2g} at most "
            f"(p99 {agreement.p99:.2g}, accepted {record.tolerance:g})"
        )
    if effect := record.quantization:
        yield (
            f"quantized: log-probabilities of {effect.tokens:,} tokens differ from the original's by {effect.mean:.2g} "
            f"in the mean, {effect.largest:.2g} at most"
        )
    asked = "no floor" if record.floor is None else f"floor {record.floor:g}"
    if record.built and record.built.speedup is not None:
        yield f"prompts: {record.built.speedup:.2f} times as fast as eager ({asked})"


def as_data(built: BuiltEngine) -> dict[str, object]:
    """For a program, with everything but the keys' factors: of these are a thousand, and they lie next to the logs."""
    record = built.record.model_dump(mode="json", exclude={"cold": {"key"}, "built": {"key"}, "eager": {"key"}})
    return {"engine": built.engine, "found": built.found, "root": str(built.root), "record": record}
