"""`engine.image` and `engine.weights`: an image that serves as it is, and where it finds a version's files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import BeforeValidator, Field

from tidegate.core.model import SpecConflict, SpecModel

PLACES = {"{version}": "the model version's number", "{digest}": "the digest over its files"}
"""What may stand in a place of weights, and what it becomes."""

_OBJECT = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
_URL = r"^https?://[^\s/?#@]+(/[^\s?#]*)?$"


class PrebuiltSpec(SpecModel):
    """An image with an OpenAI-compatible vLLM server as its entrypoint, such as `vllm/vllm-openai`."""

    reference: str = Field(pattern=r"^[a-z0-9][^\s@]*(@sha256:[0-9a-f]{64})?$")
    """By digest: REGISTRY/REPOSITORY@sha256:DIGEST."""
    by_tag: bool = False
    """Take a tag, which may name another image tomorrow: then pods of one version may run different images, and
    neither a gate nor the ledger knows which."""

    @property
    def is_pinned(self) -> bool:
        """Whether it is named by digest."""
        return "@" in self.reference

    def contradictions(self) -> Iterator[SpecConflict]:
        """A tag that nobody has allowed."""
        if not self.is_pinned and not self.by_tag:
            expected = (
                "REGISTRY/REPOSITORY@sha256:DIGEST (`docker buildx imagetools inspect IMAGE` prints it), "
                "or {reference: IMAGE, by_tag: true}"
            )
            yield SpecConflict((), f"{self.reference}, which may be another image tomorrow", expected)


def _as_reference(said: object) -> object:
    return {"reference": said} if isinstance(said, str) else said


Prebuilt = Annotated[PrebuiltSpec, BeforeValidator(_as_reference, json_schema_input_type=str | PrebuiltSpec)]


class WeightsSpec(SpecModel):
    """Where an engine of `engine.image` finds a version's files; without `claim`, `path` and `model` in the registry,
    from which a container brings them, and proves them, before the engine starts.
    """

    claim: str | None = Field(default=None, pattern=_OBJECT)
    """A volume claim that is mounted read-only; `path` is inside it."""
    path: str | None = Field(default=None, pattern=r"^[^\s]+$")
    """A folder, of the claim or else of the image; `{version}` and `{digest}` stand for the model version's."""
    model: str | None = Field(default=None, pattern=r"^[\w.-]+(/[\w.{}-]+)+$")
    """What the engine itself downloads from Hugging Face's hub: ORGANISATION/NAME."""
    revision: str | None = Field(default=None, pattern=r"^[\w.{}/-]+$")
    """Of `model`: a commit, or a branch or tag, behind which other files may be tomorrow; `{version}` as in `path`."""
    image: str | None = Field(default=None, pattern=r"^\S+@sha256:[0-9a-f]{64}$")
    """What brings files from the registry: an image with tidegate, as tidegate's Containerfile makes it; that of
    `workflow` when absent."""
    tracking_uri: str | None = Field(default=None, pattern=_URL)
    """MLflow, as pods reach it; that of `workflow` when absent."""
    secrets: tuple[Annotated[str, Field(pattern=_OBJECT)], ...] | None = None
    """Secrets whose keys become variables of that container; `workflow.secrets.registry` when absent."""

    @property
    def from_registry(self) -> bool:
        """Whether a container brings and proves them."""
        return not (self.claim or self.path or self.model)

    def contradictions(self) -> Iterator[SpecConflict]:
        """Two places at once, and parts of a place that is not meant."""
        if self.model and (self.claim or self.path):
            yield SpecConflict(("model",), "a model of the hub next to a folder", "one of the two")
        if self.claim and not self.path:
            yield SpecConflict(("path",), "no folder of the claim", "one, such as support-llm/{version}")
        if self.path and not self.claim and not self.path.startswith("/"):
            yield SpecConflict(("path",), self.path, "a folder of the image, from /; or a `claim` that it is inside")
        if self.path and ".." in self.path.split("/"):
            yield SpecConflict(("path",), self.path, "a path without `..`")
        if self.revision and not self.model:
            yield SpecConflict(("revision",), "a revision of no model", "`model: ORGANISATION/NAME`")
        for name in ("image", "tracking_uri", "secrets"):
            if getattr(self, name) and not self.from_registry:
                expected = "nothing: no container brings the files from the registry"
                yield SpecConflict((name,), str(getattr(self, name)), expected)
