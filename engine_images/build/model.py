"""The nouns of a build: what was ordered, what it is called, what is known of it afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from engine_images.compile.logprobs import Agreement
from engine_images.compile.proof import Proof, Started
from engine_images.manifest import CompileKey, Launch, ModelContract
from engine_images.model import EngineEnvironment
from engine_images.oci.model import canonical
from tidegate.core.model import Value


class Order(Value):
    """What is to be built."""

    model: ModelContract
    served_name: str
    """What requests carry in their `model` field."""
    folder: Path
    """The model version's files, proven against their digests."""
    launch: Launch
    environment: EngineEnvironment
    recipe: str
    """Digest of what the engine environment was made from."""
    entrypoint: str
    """Digest of the entrypoint's files."""
    compiled: bool
    """Else it runs eagerly, and there is nothing to prove."""
    prompts: tuple[str, ...] = ()
    """On which compiled and eager are compared."""
    tolerance: float = Field(gt=0)
    """The largest difference of a token's log-probability, compiled against eager, that is accepted."""
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
            "recipe": self.recipe,
            "entrypoint": self.entrypoint,
            "compiled": self.compiled,
            "key": dict(key.factors),
        }


class Compiled(Value):
    """A compile cache on the shelf, and the cold start that made it."""

    cold: Started


class Record(Value):
    """What is known of a built engine: beside it, not in it, because no second build would measure the same."""

    engine: str
    model: str
    """As MLflow writes it: models:/NAME/VERSION."""
    cold: Started | None = None
    """The start that compiled; it may have been another version's. An engine that runs eagerly has no figures."""
    built: Started | None = None
    eager: Started | None = None
    agreement: Agreement | None = None
    tolerance: float

    @classmethod
    def of(cls, engine: str, model: str, proof: Proof) -> Record:
        """The record of an engine that was proven."""
        return cls(
            engine=engine,
            model=model,
            cold=proof.cold,
            built=proof.built,
            eager=proof.eager,
            agreement=proof.agreement,
            tolerance=proof.tolerance,
        )


class Built(Value):
    """An engine that is ready to be served, or packed into an image."""

    engine: str
    root: Path
    """As `/engine` in an image: manifest, entrypoint, compile cache, model."""
    record: Record
    found: bool
    """It was there already: nothing was built."""


def _digest(document: Mapping[str, object]) -> str:
    return hashlib.sha256(canonical(document)).hexdigest()
