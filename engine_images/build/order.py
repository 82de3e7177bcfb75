"""What is to be built, from a model version's files and the spec."""

from __future__ import annotations

from pathlib import Path

from engine_images.adapters.engine_root import entrypoint_digest
from engine_images.adapters.environment import recipe_digest
from engine_images.adapters.weights import read_weights
from engine_images.build.model import Order
from engine_images.build.prompts import prompts
from engine_images.launch import launch_of
from engine_images.manifest import ModelContract
from engine_images.memory import estimate_memory
from engine_images.model import EngineEnvironment
from engine_images.spec import CompileMode, EngineSettings


def order_for(
    model: ModelContract, folder: Path, settings: EngineSettings, environment: EngineEnvironment, *, name: str
) -> Order:
    """An order for the version whose files are in `folder`, to be served under `name`.

    Raises:
        VersionMismatch: the settings pin another vLLM than the environment has.
        NotAModel: there are no weights, or they cannot be read.
    """
    return Order(
        model=model,
        served_name=name,
        folder=folder.absolute(),
        launch=launch_of(settings, environment, name=name),
        environment=environment,
        recipe=recipe_digest(),
        entrypoint=entrypoint_digest(),
        compiled=settings.compile.mode is not CompileMode.NONE,
        prompts=prompts(),
        tolerance=settings.compile.tolerance,
        memory_bytes=estimate_memory(read_weights(folder), settings.vllm.args),
    )
