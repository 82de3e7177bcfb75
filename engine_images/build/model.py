"""The nouns of a build: what was requested, what it is called, what is known of it afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from engine_images.build.proof import (
    Agreement,
    CompileProof,
    EngineStart,
    QuantizationEffect,
)
from engine_images.choices import CompileMode
from engine_images.launch import launch_of
from engine_images.manifest import CompileKey, Launch, ModelContract
from engine_images.model import EngineEnvironment
from engine_images.oci.entrypoint_files import entrypoint_digest
from engine_images.oci.model import canonical
from engine_images.spec import EngineSettings
from tidegate.core.model import Value


class BuildRequest(Value):
    """What is to be built."""

    model: ModelContract
    served_name: str
    """What requests carry in their `model` field."""
    folder: Path
    """The model version's files, proven against their digests."""
    launch: Launch
    environment: EngineEnvironment
    entrypoint: str
    """Digest of the entrypoint's files."""
    compiled: bool
    """Else it runs eagerly, and there is nothing to prove."""
    prompts: tuple[str, ...] = ()
    """On which compiled and eager are compared."""
    tolerance: float = Field(ge=0)
    """The largest difference of log-probabilities of compiled and eager that is accepted."""
    floor: float | None = None
    """The smallest speedup that is accepted."""
    original: BuildRequest | None = None
    """The same without quantization, to compare with; None where no weights are quantized while they are loaded."""
    quantization_tolerance: float | None = None
    """The largest mean difference from `original` that is accepted; None accepts any."""
    memory_bytes: int
    """What a process of it is expected to need."""

    def name(self, key: CompileKey) -> str:
        """The engine's own digest: the same inputs on the same kind of machine are the same engine."""
        return _digest({**self._common(key), "model": self.model.model_dump(mode="json")})

    def compile_name(self, key: CompileKey) -> str:
        """Names what is compiled. Weights are not in it: all versions of an architecture share it."""
        return _digest(self._common(key))

    def _common(self, key: CompileKey) -> dict[str, object]:
        return {
            "launch": self.launch.model_dump(mode="json"),
            "recipe": self.environment.recipe,
            "entrypoint": self.entrypoint,
            "compiled": self.compiled,
            "key": dict(key.factors),
        }


class CompiledModel(Value):
    """A compile cache in the engine store, and the cold start that made it."""

    cold: EngineStart


class BuildRecord(Value):
    """What is known of a built engine: next to it, not in it, because no second build would measure the same."""

    engine: str
    model: str
    """As MLflow writes it: models:/NAME/VERSION."""
    cold: EngineStart | None = None
    """The start that compiled; it may have been another version's. An engine that runs eagerly has no figures."""
    built: EngineStart | None = None
    eager: EngineStart | None = None
    agreement: Agreement | None = None
    tolerance: float
    floor: float | None = None
    quantization: QuantizationEffect | None = None
    """None where nothing is quantized, or where the original did not start and nobody asked for the comparison."""

    @classmethod
    def of(cls, engine: str, model: str, proof: CompileProof) -> BuildRecord:
        """The record of an engine that was proven."""
        return cls(
            engine=engine,
            model=model,
            cold=proof.cold,
            built=proof.built,
            eager=proof.eager,
            agreement=proof.agreement,
            tolerance=proof.tolerance,
            floor=proof.floor,
        )

    def holds(self, request: BuildRequest) -> bool:
        """Whether what was proven then is enough now."""
        allowed, effect = request.quantization_tolerance, self.quantization
        if allowed is not None and (effect is None or not effect.within(allowed)):
            return False
        if self.agreement is None:
            return True
        speedup = self.built.speedup if self.built else None
        fast = request.floor is None or (speedup or 0) >= request.floor
        return fast and self.agreement.within(request.tolerance)


class BuiltEngine(Value):
    """An engine that is ready to be served, or packed into an image."""

    engine: str
    root: Path
    """As `/engine` in an image: manifest, entrypoint, compile cache, model."""
    record: BuildRecord
    found: bool
    """It was there already: nothing was built."""


def _digest(document: Mapping[str, object]) -> str:
    return hashlib.sha256(canonical(document)).hexdigest()


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
    memory_bytes: int,
) -> BuildRequest:
    """A build request for the version whose files are in `folder`, to be served under `name`.

    Raises:
        VersionMismatch: the settings pin another vLLM than the environment has.
    """
    asked, original = settings.compile, None
    if unquantized := settings.unquantized:
        original = build_request(model, folder, unquantized, environment, name=name, memory_bytes=memory_bytes)
    return BuildRequest(
        model=model,
        served_name=name,
        folder=folder.absolute(),
        launch=launch_of(settings, environment, name=name),
        environment=environment,
        entrypoint=entrypoint_digest(),
        compiled=asked.mode is not CompileMode.NONE,
        prompts=prompts(),
        tolerance=asked.tolerance,
        floor=settings.floor,
        original=original,
        quantization_tolerance=asked.quantization_tolerance,
        memory_bytes=memory_bytes,
    )
