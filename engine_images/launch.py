"""Settings become what an engine's entrypoint tells vLLM. Pure: nothing is started here.

The model's path and everything else that vLLM puts into the key of its compile cache must be the same
for all versions of an architecture, or each version compiles again (docs/internals/decisions/0003). So the model is
always `model`, relative to the folder that vLLM starts in.

An image that somebody else built has no such cache, and may have a vLLM that nobody has catalogued: then its arguments
are passed as they are. The catalogue of the nearest version knows most of them, so what it would refuse is a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from engine_images.accelerators import Accelerator
from engine_images.arguments.serving import LOADERS
from engine_images.arguments.values import ArgumentValue, command_line
from engine_images.choices import CompileMode
from engine_images.errors import VersionMismatch
from engine_images.manifest import MODEL_FOLDER, Launch
from engine_images.memory import DEFAULT_KV_CACHE_BYTES
from engine_images.model import EngineEnvironment
from engine_images.spec import EngineSettings, VllmSpec
from tidegate.core.model import Value

DRAIN_SECONDS = 30
"""How long an engine told to stop may finish its answers. vLLM's default, 0, cuts streams without a word."""

ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    # All files are here and proven; an engine that fetched one could serve something else.
    "HF_HUB_OFFLINE": "1",
    # Longer than a gateway keeps a connection that nobody uses, an hour by Envoy's default. With vLLM's own 5 s a
    # request may meet one that is being closed, and its user gets 503: most of all on a quiet canary.
    "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "4000",
}

SAFE_LOADER = LOADERS[0]


def launch_of(settings: EngineSettings, environment: EngineEnvironment, *, name: str) -> Launch:
    """How an engine's entrypoint starts vLLM, whatever the machine: what the manifest says of it.

    Raises:
        VersionMismatch: the settings pin another vLLM than the environment has.
    """
    vllm = settings.vllm
    if vllm.version != environment.vllm:
        raise VersionMismatch(
            f"the spec pins vLLM {vllm.version}, but {environment.python} has {environment.vllm}",
            hint=f"set engine.vllm.version to {environment.vllm}",
        )
    # One process less: 1 GB and 5 s less for each engine.
    on_cpu = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"} if settings.accelerator is Accelerator.CPU else {}
    return Launch(
        arguments=(*_serving_arguments(settings, name), *_spec_arguments(settings)),
        environment=ENVIRONMENT | on_cpu,
        drain_seconds=DRAIN_SECONDS,
        warm_up=settings.compile.warm,
    )


def _serving_arguments(settings: EngineSettings, name: str) -> Iterator[str]:
    yield from ("--model", MODEL_FOLDER, "--served-model-name", name)
    # Without it vLLM falls back to pickled weights when it finds no others.
    yield from ("--load-format", settings.vllm.serving.load_format or SAFE_LOADER)
    yield "--enable-tokenizer-info-endpoint"
    # With vLLM's own default a tiny engine takes 2.0 GB instead of 1.1 GB, and a machine runs several.
    if settings.accelerator is Accelerator.CPU and "kv-cache-memory-bytes" not in settings.vllm.args:
        yield from ("--kv-cache-memory-bytes", str(DEFAULT_KV_CACHE_BYTES))
    if settings.compile.mode is CompileMode.NONE:
        yield "--enforce-eager"


def _spec_arguments(settings: EngineSettings) -> tuple[str, ...]:
    """What the spec says in vLLM's own words, and its sampling defaults."""
    args = {name: value for name, value in settings.vllm.args.items() if name != "load-format"}
    if settings.compile.mode is CompileMode.MAX_AUTOTUNE:
        args["compilation-config"] = _autotuned(args.get("compilation-config"))
    if settings.sampling.said:
        args["override-generation-config"] = settings.sampling.generation_config
    return command_line(args)


def _autotuned(config: ArgumentValue) -> dict[str, ArgumentValue]:
    """The spec's own compilation config, with inductor told to try more kernels."""
    own = dict(config) if isinstance(config, Mapping) else {}
    inductor = own.get("inductor_compile_config")
    chosen = inductor if isinstance(inductor, Mapping) else {}
    return {**own, "inductor_compile_config": {"max_autotune": True, **chosen}}


class ModelPlace(Value):
    """Where the engine finds the files of its model version."""

    model: str
    """A folder, or a name of the hub's."""
    revision: str = ""

    @property
    def is_folder(self) -> bool:
        """Whether nothing is downloaded by the engine itself."""
        return self.model.startswith("/")


FIRST_KNOWN = (0, 32)
"""The first vLLM of which it is known here what it does when it is told to stop, and which edges it takes."""


def is_known(vllm: VllmSpec) -> bool:
    """Whether this vLLM finishes its answers by `--shutdown-timeout`, and takes `--custom-histogram-buckets`."""
    found = re.match(r"(\d+)\.(\d+)", vllm.version)
    return found is not None and (int(found[1]), int(found[2])) >= FIRST_KNOWN


def prebuilt_arguments(
    settings: EngineSettings, place: ModelPlace, *, name: str, port: int, drain_seconds: int
) -> tuple[str, ...]:
    """The words behind the image's entrypoint."""
    vllm = settings.vllm
    args: dict[str, ArgumentValue] = dict(vllm.args)
    # What the hub has is read as vLLM finds it, unless the spec says otherwise.
    loader = args.pop("load-format", SAFE_LOADER if place.is_folder else None)
    if settings.sampling.said:
        args["override-generation-config"] = settings.sampling.generation_config
    return (
        *("--model", place.model, "--served-model-name", name, "--port", str(port)),
        *(("--revision", place.revision) if place.revision else ()),
        *(("--load-format", str(loader)) if loader else ()),
        *(("--shutdown-timeout", str(drain_seconds)) if is_known(vllm) else ()),
        *(("--enforce-eager",) if settings.compile.mode is CompileMode.NONE else ()),
        *command_line(args),
    )


def prebuilt_environment(place: ModelPlace) -> dict[str, str]:
    """Variables that are no secrets."""
    return {name: value for name, value in ENVIRONMENT.items() if place.is_folder or name != "HF_HUB_OFFLINE"}
