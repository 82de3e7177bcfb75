"""Builds an engine: compile once, start what was packed, compare it with eager, and only then keep it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from engine_images.accelerators import Accelerator
from engine_images.build.engine_root import digests_of, fixed_run_folder, write_root
from engine_images.build.engine_store import EngineStore
from engine_images.build.model import BuildRecord, BuildRequest, BuiltEngine, CompiledModel
from engine_images.build.proof import CompileProof, GoldenTerms
from engine_images.checks.weights import read_weights
from engine_images.choices import CompileMode
from engine_images.errors import NotProven
from engine_images.launch import launch_of
from engine_images.manifest import CompileKey, EngineManifest, ModelContract
from engine_images.memory import estimate_memory, host_bytes
from engine_images.model import EngineEnvironment, GpuShare
from engine_images.oci.entrypoint_files import entrypoint_digest
from engine_images.ports import BuildRunner, Progress, StartAttempt, StartResult
from engine_images.spec import EngineSettings
from tidegate.core.errors import OutsideError


def prompts() -> tuple[str, ...]:
    """Fifty; the same for every build, so that their figures can be compared."""
    return tuple(Path(__file__).with_name("prompts.txt").read_text(encoding="utf-8").splitlines())


def build_request(
    model: ModelContract,
    folder: Path,
    settings: EngineSettings,
    environment: EngineEnvironment,
    *,
    name: str,
    share: GpuShare | None = None,
    golden: GoldenTerms | None = None,
) -> BuildRequest:
    """A build request for the version whose files are in `folder`, to be served under `name`.

    `share` is what an engine takes of GPUs that it shares; `golden` is for weights that are quantized while they are
    loaded, and for nothing else.

    Raises:
        VersionMismatch: the settings pin another vLLM than the environment has.
        NotAModel: there are no weights, or they cannot be read.
    """
    asked, unquantized = settings.compile, settings.unquantized
    return BuildRequest(
        model=model,
        served_name=name,
        folder=folder.absolute(),
        launch=launch_of(settings, environment, name=name),
        environment=environment,
        recipe=environment.recipe,
        entrypoint=entrypoint_digest(),
        compiled=asked.mode is not CompileMode.NONE,
        prompts=prompts(),
        tolerance=asked.tolerance,
        floor=settings.floor,
        original=(
            build_request(model, folder, unquantized, environment, name=name, share=share) if unquantized else None
        ),
        quantization_tolerance=asked.quantization_tolerance,
        golden=golden if unquantized else None,
        memory_bytes=_process_bytes(settings, folder),
        share=share,
    )


def _process_bytes(settings: EngineSettings, folder: Path) -> int:
    """In the machine's own memory, where a CPU has its weights and its KV cache too."""
    if settings.accelerator is not Accelerator.CPU:
        return host_bytes(settings.accelerator_count)
    return estimate_memory(read_weights(folder), settings.vllm.args)


class Builder:
    """Builds one engine after the other with the adapters that it was given."""

    def __init__(self, store: EngineStore, runner: BuildRunner) -> None:
        self._store = store
        self._runner = runner

    async def build(self, request: BuildRequest, progress: Progress) -> BuiltEngine:
        """The engine, found or built; `progress` gets a line before each long step.

        Raises:
            NotProven: the compile cache is missed, the compiled model is another one than the eager, or too slow, or
                quantization changed more than is accepted.
            TidegateError: it did not start.
        """
        key = await self._runner.key(request, self._store.work_folder(f"key-{request.model.digest[:16]}"))
        engine = request.name(key)
        async with self._store.locked(engine, "builds this engine", progress):
            found = self._store.find(engine)
            if found and found.record.holds(request):
                return found
            if request.compiled:
                return await self._proven(request, engine, key, progress)
            self._write(request, EngineManifest(engine=engine, model=request.model, launch=request.launch), cache=None)
            record = BuildRecord(engine=engine, model=request.model.uri, tolerance=request.tolerance)
            if request.original:
                eager = await self._eager(request, engine, progress)
                record = await self._quantized(request, record.model_copy(update={"eager": eager.start}), progress)
            return self._store.keep(record)

    async def _proven(self, request: BuildRequest, engine: str, key: CompileKey, progress: Progress) -> BuiltEngine:
        name = request.compile_name(key)
        async with self._store.locked(name, "compiles the same model", progress):
            compiled = self._store.compiled(name) or await self._compile(request, name, progress)
        cache = self._store.cache(name)
        digests = await asyncio.to_thread(digests_of, cache)
        manifest = EngineManifest(engine=engine, model=request.model, launch=request.launch, key=key, cache=digests)
        self._write(request, manifest, cache)
        proof = await self._prove(request, manifest, compiled, progress)
        problems = proof.problems()
        if problems:
            # The next build compiles again: what is wrong may have been this cache alone.
            self._store.drop_compiled(name)
            raise NotProven("; ".join(problems), hint=f"see the logs in {self._store.work_folder(engine)}")
        record = await self._quantized(request, BuildRecord.of(engine, request.model.uri, proof), progress)
        return self._store.keep(record)

    async def _eager(self, request: BuildRequest, engine: str, progress: Progress) -> StartResult:
        folder = self._store.work_folder(engine)
        progress("starting it eagerly, to compare with")
        return await self._runner.start(
            request, self._store.root(engine), StartAttempt("eager", folder, folder / "eager")
        )

    async def _quantized(self, request: BuildRequest, record: BuildRecord, progress: Progress) -> BuildRecord:
        """The record with what quantization changed, once the eager engine has answered.

        Raises:
            NotProven: it changed more than is accepted.
            TidegateError: the original did not start, and somebody asked what may change.
        """
        if request.original is None:
            return record
        original = request.original.model_copy(update={"prompts": request.prompts, "golden": request.golden})
        allowed = request.quantization_tolerance
        folder = self._store.work_folder(record.engine)
        root = folder / "original-root"
        write_root(root, EngineManifest(engine="", model=original.model, launch=original.launch), original.folder, None)
        progress("starting it without quantization, to compare with")
        try:
            found = await self._runner.start(original, root, StartAttempt("original", folder, folder / "original"))
        except OutsideError as error:
            # Weights that are quantized because they are too large for the machine have nothing to be compared with.
            if allowed is not None:
                raise
            progress(f"not compared with the original: {error.message}")
            return record
        effect, golden = found.quantization, found.golden
        assert effect is not None, "the original answered after the eager engine"
        problems = [effect.problem(allowed)] if allowed is not None and not effect.within(allowed) else []
        if request.golden and golden and not golden.within(request.golden):
            problems.append(golden.problem(request.golden))
        if problems:
            raise NotProven("; ".join(problems), hint=f"see the logs in {folder}")
        return record.model_copy(update={"quantization": effect, "golden": golden})

    async def _compile(self, request: BuildRequest, name: str, progress: Progress) -> CompiledModel:
        """Start once with an empty cache; what is put there is kept."""
        progress("compiling the model (a minute or more)")
        self._write(request, EngineManifest(engine=name, model=request.model, launch=request.launch), cache=None)
        attempt = StartAttempt("cold", self._store.work_folder(name), fixed_run_folder(name))
        cold = await self._runner.start(request, self._store.root(name), attempt)
        compiled = CompiledModel(cold=cold.start)
        self._store.keep_compiled(name, compiled, attempt.cache)
        return compiled

    async def _prove(
        self, request: BuildRequest, manifest: EngineManifest, compiled: CompiledModel, progress: Progress
    ) -> CompileProof:
        folder, root = self._store.work_folder(manifest.engine), self._store.root(manifest.engine)
        eager = await self._eager(request, manifest.engine, progress)
        progress("starting what was built")
        built = await self._runner.start(request, root, StartAttempt("built", folder, folder / "built"))
        return CompileProof(
            cold=compiled.cold,
            built=built.start,
            eager=eager.start,
            rebuilt=built.rebuilt,
            agreement=built.agreement,
            tolerance=request.tolerance,
            floor=request.floor,
        )

    def _write(self, request: BuildRequest, manifest: EngineManifest, cache: Path | None) -> None:
        write_root(self._store.root(manifest.engine), manifest, request.folder, cache)
