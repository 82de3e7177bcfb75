"""A torch module built in each mode, without registry and spec: the old spelling of `engine.torch` in a spec."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine_images.build.builder import Builder, module_request
from engine_images.build.engine_store import EngineStore
from engine_images.build.model import BuildRequest, BuiltEngine, CompiledModel
from engine_images.build.torch_run import CompileOptions, TorchWorkload, shape_from
from engine_images.choices import CompileMode, DynamicShapes, TorchDevice
from engine_images.manifest import CACHE_FOLDER, ModelContract
from engine_images.ports import BuildRunner
from tidegate.app.process import note
from tidegate.app.wiring.engines.providers import torch_builds
from tidegate.core.errors import UsageError


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


def build_module(asked: TorchOptions) -> Mapping[CompileMode, BuiltEngine]:
    """Build each mode, and prove it.

    Raises:
        UsageError: there is nothing to compile, or the caches are not there, or there already.
        NotProven: outputs differ, or a saved cache is not used again; then nothing is kept.
    """
    note("`engine torch` goes with the next release: set engine.torch in a spec, and run `tidegate engine build`")
    if asked.save and asked.load:
        raise UsageError(
            "--save and --load exclude each other", hint="make the cache with one, start from it with the other"
        )
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
        return asyncio.run(_build(asked, workload, Path(workdir)))


async def _build(asked: TorchOptions, workload: TorchWorkload, workdir: Path) -> dict[CompileMode, BuiltEngine]:
    (environment, runner), store, files = torch_builds(asked.timeout), EngineStore(workdir / "store"), workdir / "files"
    files.mkdir()
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


async def _adopt(saved: Path, request: BuildRequest, store: EngineStore, runner: BuildRunner) -> None:
    """Let a saved cache stand for the one that this build would compile."""
    key = await runner.key(request, store.work_folder("key"))
    copy = shutil.copytree(saved, store.work_folder("saved"), dirs_exist_ok=True)
    store.keep_compiled(request.compile_name(key), CompiledModel(cold=None), copy)
