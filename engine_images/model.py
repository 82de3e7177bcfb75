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
    loaders: tuple[str, ...] = ()
    """Packages of `engine_images.arguments.serving.LOADERS` that are in it."""


class Weights(Value):
    """What the headers of a model's safetensors files say, read without the weights themselves."""

    elements: Mapping[str, int]
    """Number of elements for each dtype as safetensors writes it (`F32`, `BF16`, `I8`)."""


class GpuShare(Value):
    """What an engine takes of GPUs that it shares with others."""

    count: int
    """On how many of them it runs."""
    each_bytes: int
    """Memory on each."""
    names: tuple[str, ...]
    """Of GPUs that it may run on, as the driver's own tool calls them."""
    arguments: tuple[str, ...]
    """What vLLM is told, so that it takes no more; nothing that the spec says itself."""


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
