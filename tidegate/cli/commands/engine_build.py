"""`tidegate engine build`: a model version becomes an engine, and an image if there is a base for it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine_images.adapters.engine_root import PACKAGE
from engine_images.adapters.oci_build import base_at, build_image, contents_in, installed_packages
from engine_images.adapters.oci_layout import OciLayout
from engine_images.build.model import BuildRecord, BuildRequest, BuiltEngine
from engine_images.build.proof import Agreement, EngineStart
from engine_images.manifest import ENTRYPOINT_FOLDER, ROOT
from engine_images.oci.compose import Contents
from engine_images.oci.model import Descriptor, Runtime
from engine_images.sbom import sbom_of
from engine_images.signature import SigningKey
from pipelines.state import StateFolder
from registry.conventions import ENGINE, ENGINE_PROOF, name_and_reference
from tidegate.app.process import note
from tidegate.app.wiring.engines import local_engines
from tidegate.app.wiring.specs import read_spec
from tidegate.app.wiring.stores import open_registry
from tidegate.cli.engine_images import RegistryLogin, aligned, in_bytes, read_key, this_platform
from tidegate.cli.output import print_json
from tidegate.core.errors import UsageError


@dataclass(frozen=True)
class EngineBuildOptions:
    """What a person asked for."""

    model: str
    """models:/NAME/VERSION, or models:/NAME@ALIAS."""
    spec: Path
    state: Path
    tracking_uri: str | None
    base: str | None
    layout: Path | None
    with_weights: bool
    sign_key: Path | None


def build_engine(request: EngineBuildOptions, login: RegistryLogin, *, as_json: bool) -> int:
    """Build, and pack what was built."""
    # Before minutes of compiling: a key or a base that cannot be read.
    key = SigningKey(read_key(request.sign_key)) if request.sign_key else None
    base = base_at(request.base, this_platform(), login.access) if request.base else None
    spec, state = read_spec(request.spec, served=False), StateFolder(request.state)
    if base and spec.engine.torch:
        raise UsageError("an image is of an engine that vLLM serves", hint="leave out --base for engine.torch")
    registry = open_registry(request.state, request.tracking_uri)
    version = registry.resolve(*name_and_reference(request.model))
    order, built = asyncio.run(local_engines(spec, state, registry, request.spec.parent).build(version, note))
    registry.mark(version, {ENGINE: built.engine, ENGINE_PROOF: in_one_line(built.record)})
    image = None
    if base:
        layout, name = request.layout or state.images, f"{version.name}:{version.version}"
        contents = _contents(order, built, with_weights=request.with_weights)
        descriptor = build_image(
            OciLayout(layout), name=name, base=base, contents=contents, runtime=_runtime(order), key=key
        )
        image = (f"{layout}:{name}", descriptor)
    if as_json:
        print_json(document_of(built, image))
        return 0
    print(f"engine  {built.engine}{', found' if built.found else ''}")
    print(f"at      {built.root}")
    if image:
        print(f"image   {image[0]}, {image[1].digest}")
    for line in lines_of(built.record):
        print(line)
    return 0


def _contents(order: BuildRequest, built: BuiltEngine, *, with_weights: bool) -> Contents:
    home = Path(order.environment.python).parent.parent
    return contents_in(built.root, with_weights=with_weights, sbom=sbom_of(installed_packages(home), order.model))


def _runtime(order: BuildRequest) -> Runtime:
    """The container's first process: the entrypoint, on the Python of the engine environment that the base has."""
    return Runtime(
        entrypoint=(order.environment.python, "-m", PACKAGE, "serve"),
        environment={"PYTHONPATH": f"{ROOT}/{ENTRYPOINT_FOLDER}", "PYTHONSAFEPATH": "1"},
        workdir=ROOT,
    )


def lines_of(record: BuildRecord) -> Iterator[str]:
    """What was measured and proven, for a person."""
    yield from aligned([("start", "seconds", "initialization", "memory"), *_starts(record)])
    agreement, built = record.agreement, record.built
    if isinstance(agreement, Agreement):
        yield (
            f"log-probabilities of {agreement.tokens:,} tokens differ from eager's by {agreement.largest:.2g} at most "
            f"(p99 {agreement.p99:.2g}, accepted {record.tolerance:g})"
        )
    elif agreement:
        yield (
            f"outputs differ from eager's by {agreement.largest:.2g} at most "
            f"(largest {agreement.largest_output:.2g}, accepted {record.tolerance:g})"
        )
    asked = "no floor" if record.floor is None else f"floor {record.floor:g}"
    for timing in built.timings if built else ():
        if timing.speedup is not None:
            yield f"{timing.name}: {timing.speedup:.2f} times as fast as eager ({asked})"
    for reason, times in Counter(built.breaks if built else ()).items():
        yield f"torch broke the graph{f' {times} times' if times > 1 else ''}: {reason}"


def _starts(record: BuildRecord) -> list[tuple[str, ...]]:
    starts = {"cold": record.cold, "built": record.built, "eager": record.eager}
    return [_start(what, started) for what, started in starts.items() if started]


def _start(what: str, started: EngineStart) -> tuple[str, ...]:
    init = started.log.init_seconds
    return what, f"{started.seconds:.1f}", "" if init is None else f"{init:.1f} s", in_bytes(started.memory_bytes)


def in_one_line(record: BuildRecord) -> str:
    """What was proven, for the model version."""
    if not (record.cold and record.built and record.agreement):
        return "runs eagerly: nothing is compiled"
    agreement = record.agreement
    return (
        f"first answer after {record.built.seconds:.1f} s, {record.cold.seconds:.1f} s without its compile cache; "
        f"{agreement.what} within {agreement.largest:.2g} of eager's, {record.tolerance:g} accepted"
    )


def document_of(built: BuiltEngine, image: tuple[str, Descriptor] | None) -> dict[str, object]:
    """The same for a program."""
    # The keys have a thousand factors each; they are next to the logs of the build.
    keys = {start: {"key"} for start in ("cold", "built", "eager") if getattr(built.record, start)}
    return {
        "engine": built.engine,
        "found": built.found,
        "root": str(built.root),
        "image": {"name": image[0], "digest": image[1].digest, "size": image[1].size} if image else None,
        "record": built.record.model_dump(mode="json", exclude=keys),
    }
