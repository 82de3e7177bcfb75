"""What an engine is, written down once: the file that the image carries and that its entrypoint checks at start.

Only what follows from the inputs stands here. How long a start took, or which machine built it, would make
every build another image; that is in the record of the build.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from tidegate.core.model import Value

ROOT = "/engine"
"""Where an image holds everything of ours."""
MANIFEST_FILE = "manifest.json"
SIGNATURE_FILE = "manifest.json.sig"
"""Of the manifest's bytes: ECDSA on P-256 with SHA-256, in base64."""
SBOM_FILE = "sbom.cdx.json"
"""The packages of the engine environment and the model's files, in CycloneDX."""
CACHE_FOLDER = "cache"
"""The compile cache, as VLLM_CACHE_ROOT has it. Read only in an image: vLLM gets a copy."""
MODEL_FOLDER = "model"
"""The model's folder. Empty in an image whose weights are pulled at start."""
ENTRYPOINT_FOLDER = "entrypoint"

Digests = Mapping[str, str]
"""SHA-256 by relative path with forward slashes."""


class ModelContract(Value):
    """Which model version this is, and what its users may rely on."""

    name: str
    version: str
    digest: str
    """Over all files, as the registry has it."""
    files: Digests
    """Weights, tokenizer, chat template: everything that is served."""
    source: str = ""
    """Where an image without weights pulls the files from, without credentials; empty when nowhere is known. Of several
    addresses with blanks between them the first that has a file gives it.
    """
    sampling: Mapping[str, float] = {}
    """Defaults for requests that say nothing: temperature, top_p, top_k, repetition_penalty, ..."""

    @property
    def uri(self) -> str:
        """As MLflow writes it."""
        return f"models:/{self.name}/{self.version}"


class Launch(Value):
    """How vLLM is started."""

    arguments: tuple[str, ...]
    """Of its server; `{port}` stands for the port."""
    environment: Mapping[str, str]
    drain_seconds: int
    """How long open answers may take once the engine is told to stop."""
    warm_up: tuple[int, ...] = (1,)
    """Batch sizes that are asked once before the engine is ready."""


class CompileKey(Value):
    """Everything that decides whether a compiled model may be used again, factor by factor."""

    factors: Mapping[str, str]
    """`vllm`, `torch`, `python`, `model_config`, `arguments`, `env:NAME`, `compiler`, `cpu` or `gpu`, `cuda`, ..."""

    @property
    def digest(self) -> str:
        """One name for all of them."""
        lines = (f"{name}={self.factors[name]}\n" for name in sorted(self.factors))
        return hashlib.sha256("".join(lines).encode()).hexdigest()


class EngineManifest(Value):
    """An engine: the model, how it is started, and the compiled model with the key under which it is valid."""

    format: Literal[1] = 1
    engine: str
    """Digest of the inputs of the build; the same inputs are built once."""
    model: ModelContract
    launch: Launch
    key: CompileKey | None = None
    """None for an engine that runs eagerly."""
    cache: Digests = Field(default_factory=dict)
    """The files of the compile cache."""
