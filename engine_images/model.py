"""The nouns of an engine: where vLLM is installed, what a model's weights are, how to start the two."""

from __future__ import annotations

from collections.abc import Mapping

from engine_images.choices import EnginePlatform
from tidegate.core.model import Value


class EngineEnvironment(Value):
    """The Python environment that holds vLLM and torch; tidegate's own has neither."""

    python: str
    """The path of its interpreter."""
    vllm: str
    """The version of vLLM in it."""
    recipe: str
    """What it was made from: `engine_images.environment.recipe.recipe_digest`, or of a found one a digest of what is
    in it."""
    platform: EnginePlatform = EnginePlatform.CPU
    """What its vLLM and torch were built for."""
    site_packages: tuple[str, ...] = ()
    """The folders of its packages."""


class LaunchCommand(Value):
    """How to start an engine; a fleet needs to know no more."""

    command: tuple[str, ...]
    """The process to start; `{port}` in it is replaced by the port to listen on."""
    environment: Mapping[str, str]
    """Added to the environment of the one who starts it."""
    workdir: str
    """Where the process starts; the model is the folder `model` in it."""
    memory_bytes: int
    """What the process is expected to need when it serves."""
