"""The nouns of a build: what was requested, what it is called, what is known of it afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import Field

from engine_images.build.proof import Agreement, EngineStart, without_hashes
from engine_images.choices import CompileMode
from engine_images.entrypoint.compile_key import differences
from engine_images.launch import launch_of
from engine_images.manifest import CompileKey, Launch, ModelContract
from engine_images.model import EngineEnvironment
from engine_images.oci.entrypoint_files import entrypoint_digest
from engine_images.oci.model import canonical
from engine_images.spec import EngineSettings
from tidegate.core.model import Value
from tidegate.core.text import aligned, in_bytes

PROMPTS = Path(__file__).with_name("prompts.txt")
"""Fifty; the same for every build, so that their figures can be compared."""


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


MOST_OF_A_COLD_START = 0.5
"""A start that needs more of the cold start's initialization has built something again, whatever it logged."""


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

    def holds(self, request: BuildRequest) -> bool:
        """Whether what was proven then is enough now."""
        if self.agreement is None:
            return True
        speedup = self.built.speedup if self.built else None
        fast = request.floor is None or (speedup or 0) >= request.floor
        return fast and self.agreement.within(request.tolerance)

    def problems(self, rebuilt: int) -> Iterator[str]:
        """Why this compile cache must not be served; none when it may.

        `rebuilt` are the kernels that the built engine added to its cache: it should have found them there.
        """
        cold, built = self.cold, self.built
        assert cold and built, "only what was compiled is proven"
        if not built.log.loaded:
            why = "vLLM computed no key"
            if cold.key and built.key:
                differing = without_hashes(differences(cold.key.factors, built.key.factors))
                why = "; ".join(differing) or "the keys are the same"
            yield f"the compile cache was missed: {built.log.refused or why}"
        elif rebuilt:
            yield f"the compiled model was loaded, but {rebuilt} of its kernels were built again"
        before, now = cold.log.init_seconds, built.log.init_seconds
        if before and now and now > MOST_OF_A_COLD_START * before:
            yield f"the built engine took {now:.1f} s to initialize, a cold one {before:.1f} s"
        if self.agreement and not self.agreement.within(self.tolerance):
            yield self.agreement.problem(self.tolerance)
        if self.floor is not None and built.speedup is not None and built.speedup < self.floor:
            yield f"compiled is {built.speedup:.2f} times as fast as eager; at least {self.floor:g} is asked for"


class BuiltEngine(Value):
    """An engine that is ready to be served, or packed into an image."""

    engine: str
    root: Path
    """As `/engine` in an image: manifest, entrypoint, compile cache, model."""
    record: BuildRecord
    found: bool
    """It was there already: nothing was built."""


def in_lines(record: BuildRecord) -> Iterator[str]:
    """Say what a build has measured and proven, for a person."""
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
    asked = "no floor" if record.floor is None else f"floor {record.floor:g}"
    if record.built and record.built.speedup is not None:
        yield f"prompts: {record.built.speedup:.2f} times as fast as eager ({asked})"


def as_data(built: BuiltEngine) -> dict[str, object]:
    """The same for a program, without the keys' factors: of these are a thousand, and they lie next to the logs."""
    record = built.record.model_dump(mode="json", exclude={"cold": {"key"}, "built": {"key"}, "eager": {"key"}})
    return {"engine": built.engine, "found": built.found, "root": str(built.root), "record": record}


def _digest(document: Mapping[str, object]) -> str:
    return hashlib.sha256(canonical(document)).hexdigest()


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
    asked = settings.compile
    return BuildRequest(
        model=model,
        served_name=name,
        folder=folder.absolute(),
        launch=launch_of(settings, environment, name=name),
        environment=environment,
        entrypoint=entrypoint_digest(),
        compiled=asked.mode is not CompileMode.NONE,
        prompts=tuple(PROMPTS.read_text(encoding="utf-8").splitlines()),
        tolerance=asked.tolerance,
        floor=settings.floor,
        memory_bytes=memory_bytes,
    )
