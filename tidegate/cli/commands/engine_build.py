"""`tidegate engine build`: a model version becomes an engine, and an image if there is a base for it.

`tidegate engine torch`, the old spelling, builds a torch module in each mode, without registry and spec.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine_images.adapters.engine_root import PACKAGE
from engine_images.adapters.engine_store import EngineStore
from engine_images.adapters.environment import find_engine_environment
from engine_images.adapters.oci_build import base_at, build_image, contents_in, installed_packages
from engine_images.adapters.oci_layout import OciLayout
from engine_images.adapters.torch_runner import TorchRunner
from engine_images.build.builder import Builder, module_request
from engine_images.build.model import BuildRecord, BuildRequest, BuiltEngine, CompiledModel
from engine_images.build.proof import Agreement, EngineStart
from engine_images.build.torch_run import CompileOptions, TorchWorkload, shape_from
from engine_images.choices import CompileMode, DynamicShapes, TorchDevice
from engine_images.manifest import CACHE_FOLDER, ENTRYPOINT_FOLDER, ROOT, ModelContract
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
from tidegate.cli.output import OutputForm, print_data
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


def build_engine(request: EngineBuildOptions, login: RegistryLogin, *, output: OutputForm) -> int:
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
    if output.is_data:
        print_data(document_of(built, image), output)
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


@dataclass(frozen=True)
class TorchOptions:
    """What a person asked for."""

    factory: str
    shapes: tuple[str, ...]
    modes: tuple[CompileMode, ...]
    dynamic: DynamicShapes
    fullgraph: bool
    device: TorchDevice
    repeats: int
    tolerance: float
    save: Path | None
    load: Path | None
    timeout: float


def build_module(asked: TorchOptions, *, output: OutputForm) -> int:
    """Build each mode, and print what was proven."""
    note("`engine torch` goes with the next release: set engine.torch in a spec, and run `tidegate engine build`")
    if asked.save and asked.load:
        raise UsageError("a cache is either made or used", hint="give either --save or --load")
    for mode in asked.modes:
        if mode is CompileMode.NONE:
            raise UsageError("--mode none compiles nothing", hint="eager is always run")
        if asked.save and (asked.save / mode).exists():
            raise UsageError(f"{asked.save / mode} exists", hint="remove it, or start from it with --load")
        if asked.load and not (asked.load / mode).is_dir():
            raise UsageError(f"{asked.load / mode} holds no saved cache", hint="make one with --save")
    shapes = tuple(map(shape_from, asked.shapes))
    workload = TorchWorkload(factory=asked.factory, shapes=shapes, device=asked.device, repeats=asked.repeats)
    with tempfile.TemporaryDirectory(prefix="tidegate-torch-") as workdir:
        built = asyncio.run(_build(asked, workload, Path(workdir)))
    if output.is_data:
        print_data({mode: document_of(engine, None) for mode, engine in built.items()}, output)
        return 0
    for mode, engine in built.items():
        print(f"mode {mode}")
        for line in lines_of(engine.record):
            print(line)
    return 0


async def _build(asked: TorchOptions, workload: TorchWorkload, workdir: Path) -> dict[CompileMode, BuiltEngine]:
    environment, files = find_engine_environment(), workdir / "files"
    files.mkdir()
    store, runner = EngineStore(workdir / "store"), TorchRunner(environment, timeout_seconds=asked.timeout)
    built = {}
    for mode in dict.fromkeys(asked.modes):
        note(f"mode {mode}")
        request = module_request(
            ModelContract(name="module", version="0", digest="0" * 64, files={}),
            files,
            workload,
            CompileOptions(mode=mode, dynamic=asked.dynamic, fullgraph=asked.fullgraph),
            environment,
            tolerance=asked.tolerance,
        )
        if asked.load:
            await _adopt(asked.load / mode, request, store, runner)
        built[mode] = await Builder(store, runner).build(request, note)
    if asked.save:
        for mode, engine in built.items():
            part = asked.save / f".{mode}.part"
            shutil.copytree(engine.root / CACHE_FOLDER, part, dirs_exist_ok=True)
            part.rename(asked.save / mode)
    return built


async def _adopt(saved: Path, request: BuildRequest, store: EngineStore, runner: TorchRunner) -> None:
    """Let a saved cache stand for the one that this build would compile."""
    key = await runner.key(request, store.work_folder("key"))
    copy = shutil.copytree(saved, store.work_folder("saved"), dirs_exist_ok=True)
    store.keep_compiled(request.compile_name(key), CompiledModel(cold=None), copy)
