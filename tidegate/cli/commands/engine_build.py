"""`tidegate engine build`: what was built and proven."""

from __future__ import annotations

from collections.abc import Iterator

from engine_images.build.model import BuildRecord, BuiltEngine
from engine_images.build.proof import EngineStart
from pipelines.adapters.registry_login import RegistryLogin
from tidegate.app.engines import build
from tidegate.app.engines.build import EngineBuildOptions
from tidegate.cli.engine_images import aligned
from tidegate.cli.output import Output, print_data, say
from tidegate.core.text import in_bytes


def build_engine(request: EngineBuildOptions, login: RegistryLogin, *, output: Output) -> int:
    """Print what was built, and its image."""
    packed = build.build_engine(request, login)
    built, image = packed.built, packed.image
    if output.is_data:
        named = {"name": str(packed.place), "digest": image.digest, "size": image.size} if image else None
        print_data(document_of(built, named), output)
        return 0
    print(f"engine  {built.engine}{', found' if built.found else ''}")
    print(f"at      {built.root}")
    if image:
        print(f"image   {packed.place}, {image.digest}")
    say(*lines_of(built.record))
    return 0


def lines_of(record: BuildRecord) -> Iterator[str]:
    """What was measured and proven, for a person."""
    yield from aligned([("start", "seconds", "initialization", "memory"), *_starts(record)])
    agreement, built = record.agreement, record.built
    if agreement:
        yield (
            f"log-probabilities of {agreement.tokens:,} tokens differ from eager's by {agreement.largest:.2g} at most "
            f"(p99 {agreement.p99:.2g}, accepted {record.tolerance:g})"
        )
    if effect := record.quantization:
        yield (
            f"quantized: log-probabilities of {effect.tokens:,} tokens differ from the original's by {effect.mean:.2g} "
            f"in the mean, {effect.largest:.2g} at most; {effect.same_choice:.1%} of likeliest tokens are the same"
        )
    if golden := record.golden:
        yield (
            f"quantized: {golden.prompts:,} golden prompts score {golden.quantized:.3g} in the mean, "
            f"{golden.original:.3g} by the original"
        )
    asked = "no floor" if record.floor is None else f"floor {record.floor:g}"
    if built and built.timing and built.timing.speedup is not None:
        yield f"prompts: {built.timing.speedup:.2f} times as fast as eager ({asked})"


def _starts(record: BuildRecord) -> list[tuple[str, ...]]:
    starts = {"cold": record.cold, "built": record.built, "eager": record.eager}
    return [_start(what, started) for what, started in starts.items() if started]


def _start(what: str, started: EngineStart) -> tuple[str, ...]:
    init = started.log.init_seconds
    return what, f"{started.seconds:.1f}", "" if init is None else f"{init:.1f} s", in_bytes(started.memory_bytes)


def document_of(built: BuiltEngine, image: dict[str, object] | None) -> dict[str, object]:
    """The same for a program."""
    # The keys have a thousand factors each; they are next to the logs of the build.
    keys = {"cold": {"key"}, "built": {"key"}, "eager": {"key"}}
    return {
        "engine": built.engine,
        "found": built.found,
        "root": str(built.root),
        "image": image,
        "record": built.record.model_dump(mode="json", exclude=keys),
    }
