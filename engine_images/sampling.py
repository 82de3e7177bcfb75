"""Sampling defaults: what an answer is drawn with when the request says nothing.

They come from the version's `generation_config.json`, which is one of its files and so gated with it; the
spec may change some. vLLM reads the file by itself, so only the spec's own values go onto its command line:
they are part of the compile cache's key, and a delivery's versions share one spec but not one file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, JsonValue

from tidegate.core.model import SpecModel

PARAMETERS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "max_new_tokens": "max_tokens",
}
"""What vLLM takes from a generation config, and the name that requests use for it."""


class SamplingSpec(SpecModel):
    """Defaults that replace the version's own; what is not said stays as the version has it."""

    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=0)
    """0 considers every token."""
    min_p: float | None = Field(default=None, ge=0, le=1)
    repetition_penalty: float | None = Field(default=None, gt=0, le=2)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    max_tokens: int | None = Field(default=None, ge=1)
    """The longest answer to a request that names no limit."""

    @property
    def said(self) -> dict[str, int | float]:
        """Only what the spec says, by the name that requests use."""
        return self.model_dump(exclude_none=True)

    @property
    def generation_config(self) -> dict[str, JsonValue]:
        """The same for vLLM's `--override-generation-config`."""
        hugging_face = {ours: theirs for theirs, ours in PARAMETERS.items()}
        return {hugging_face[name]: value for name, value in self.said.items()}


def sampling_defaults(generation_config: Mapping[str, Any], spec: SamplingSpec) -> dict[str, float]:
    """What the engine will use for requests that say nothing; the contract of the model version."""
    own = {
        ours: generation_config[theirs]
        for theirs, ours in PARAMETERS.items()
        if isinstance(generation_config.get(theirs), int | float)
    }
    return {name: float(value) for name, value in sorted({**own, **spec.said}.items())}
