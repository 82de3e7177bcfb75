"""Settings become what an engine's entrypoint tells vLLM. Pure: nothing is started here.

The model's path and everything else that vLLM puts into the key of its compile cache must be the same
for all versions of an architecture, or each version compiles again (docs/internals/decisions/0003). So the model is
always `model`, relative to the folder that vLLM starts in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine_images.accelerators import Accelerator
from engine_images.arguments.pinned import pinned_vllm
from engine_images.arguments.values import ArgumentValue, command_line
from engine_images.choices import CompileMode
from engine_images.errors import VersionMismatch
from engine_images.manifest import MODEL_FOLDER, Launch
from engine_images.memory import kv_cache_bytes
from engine_images.model import EngineEnvironment
from engine_images.spec import EngineSettings

DRAIN_SECONDS = 30
"""How long an engine told to stop may finish its answers. vLLM's default, 0, cuts streams without a word."""

ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    # All files are here and proven; an engine that fetched one could serve something else.
    "HF_HUB_OFFLINE": "1",
}

CPU_ENVIRONMENT = {
    # One process less: 1 GB and 5 s less for each engine.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}


def launch_of(settings: EngineSettings, environment: EngineEnvironment, *, name: str) -> Launch:
    """How an engine's entrypoint starts vLLM, whatever the machine: what the manifest says of it.

    Raises:
        VersionMismatch: the settings pin another vLLM than the environment has.
    """
    _require_version(settings.require_vllm().version, environment)
    return Launch(
        arguments=(*_serving_arguments(settings, name), *_spec_arguments(settings)),
        environment=ENVIRONMENT | (CPU_ENVIRONMENT if settings.accelerator is Accelerator.CPU else {}),
        drain_seconds=DRAIN_SECONDS,
        warm_up=settings.compile.warm,
    )


def _require_version(pinned: str, environment: EngineEnvironment) -> None:
    if pinned != environment.vllm:
        raise VersionMismatch(
            f"the spec pins vLLM {pinned}, but {environment.python} has {environment.vllm}",
            hint=f"set engine.vllm.version to {environment.vllm}",
        )


def _serving_arguments(settings: EngineSettings, name: str) -> Iterator[str]:
    yield from ("--model", MODEL_FOLDER, "--served-model-name", name)
    # Without it vLLM falls back to pickled weights when it finds no others.
    yield from ("--load-format", "safetensors")
    yield "--enable-tokenizer-info-endpoint"
    # With vLLM's own default a tiny engine takes 2.0 GB instead of 1.1 GB, and a machine runs several.
    if settings.accelerator is Accelerator.CPU and "kv-cache-memory-bytes" not in settings.require_vllm().args:
        yield from ("--kv-cache-memory-bytes", str(kv_cache_bytes(settings.require_vllm().args)))
    if settings.compile.mode is CompileMode.NONE:
        yield "--enforce-eager"


def _spec_arguments(settings: EngineSettings) -> tuple[str, ...]:
    """What the spec says in vLLM's own words, and its sampling defaults."""
    args = dict(settings.require_vllm().args)
    if settings.compile.mode is CompileMode.MAX_AUTOTUNE:
        args["compilation-config"] = _autotuned(args.get("compilation-config"))
    if settings.sampling.said:
        args["override-generation-config"] = settings.sampling.generation_config
    return command_line(args, pinned_vllm(settings.require_vllm().version))


def _autotuned(config: ArgumentValue) -> dict[str, ArgumentValue]:
    """The spec's own compilation config, with inductor told to try more kernels."""
    own = dict(config) if isinstance(config, Mapping) else {}
    inductor = own.get("inductor_compile_config")
    chosen = inductor if isinstance(inductor, Mapping) else {}
    return {**own, "inductor_compile_config": {"max_autotune": True, **chosen}}
