"""Engines of one model, built, proven and started as tidegate does it, and the ways to start them that are compared."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from benchmarks.gpu.task import Task
from engine_images.accelerators import Accelerator
from engine_images.adapters.builder import Builder, EngineServers, StartAttempt, key_of
from engine_images.adapters.environment import find_engine_environment
from engine_images.adapters.model_version import read_version
from engine_images.arguments.values import ArgumentValue
from engine_images.build.engine_root import serve, write_root
from engine_images.build.engine_store import EngineStore
from engine_images.build.model import BuildRequest, BuiltEngine, build_request
from engine_images.build.proof import ScoredPrompt
from engine_images.checks.servable import process_bytes
from engine_images.choices import VLLM, CompileMode
from engine_images.manifest import EngineManifest, ModelContract
from engine_images.model import LaunchCommand
from engine_images.spec import EngineSettings
from pipelines.adapters.local_engines import build_servers
from registry.files import digest_files, whole_digest
from tidegate.core.clock import SystemClock

NAME = "bench"

ARGUMENTS: Mapping[bool, Mapping[str, ArgumentValue]] = {
    True: {"max-model-len": 512, "dtype": "float32"},
    False: {"max-model-len": 2048},
}
"""Of every engine: on a CPU, and on a GPU."""


# Weights of many gigabytes are read once for all orders.
_digests = cache(digest_files)


def servers() -> EngineServers:
    """What starts engines here."""
    return build_servers(SystemClock(), name=NAME)


def settings_of(accelerator: Accelerator, mode: CompileMode, arguments: Mapping[str, ArgumentValue]) -> EngineSettings:
    """As a spec would have them; `arguments` are added to those of every engine."""
    args = {**ARGUMENTS[accelerator is Accelerator.CPU], **arguments}
    vllm = {"version": VLLM, "args": args}
    return EngineSettings.model_validate({"vllm": vllm, "accelerator": accelerator, "compile": {"mode": mode}})


def order_of(
    model: Path,
    accelerator: Accelerator = Accelerator.CPU,
    *,
    mode: CompileMode = CompileMode.DEFAULT,
    arguments: Mapping[str, ArgumentValue] | None = None,
) -> BuildRequest:
    """What is to be built of the Hugging Face directory `model`."""
    environment, files = find_engine_environment(accelerator.platform), _digests(model)
    settings = settings_of(accelerator, mode, arguments or {})
    contract = ModelContract(name=NAME, version="1", digest=whole_digest(files), files=files)
    return build_request(
        contract, model, settings, environment, name=NAME, memory_bytes=process_bytes(read_version(model), settings)
    )


@dataclass(frozen=True)
class StartWay:
    """One way to start an engine."""

    what: str
    root: Path
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def attempt(self, folder: Path) -> StartAttempt:
        """A start of its own, whose log and run lie in `folder`."""
        return StartAttempt(f"{self.what} start", folder, folder / self.what, self.arguments, self.environment)

    def launch(self, order: BuildRequest, folder: Path) -> LaunchCommand:
        """The command, in a run that begins with nothing."""
        run = folder / self.what
        shutil.rmtree(run, ignore_errors=True)
        return serve(order, self.root, run, arguments=self.arguments, environment=self.environment)


async def no_questions(_url: str, _model: str, _prompts: Sequence[str]) -> tuple[ScoredPrompt, ...]:
    """For starts of which only the time counts."""
    return ()


async def built(order: BuildRequest, state: Path) -> BuiltEngine:
    """The engine with its kept compile cache, proven; found, if it was built here before.

    Raises:
        NotProven: what was built is not loaded again, is another model than the eager one, or slower.
    """
    return await Builder(EngineStore(state), servers()).build(order, say)


def built_before(order: BuildRequest, state: Path) -> BuiltEngine | None:
    """The same, if it need not be built."""
    return EngineStore(state).find(order.name(key_of(order, state / "key")))


def without_cache(order: BuildRequest, root: Path) -> Path:
    """The same engine, laid out at `root` with nothing compiled."""
    write_root(root, EngineManifest(engine=root.name, model=order.model, launch=order.launch), order.folder, None)
    return root


def order_for(task: Task, model: Path) -> BuildRequest:
    """Few prompts where it is only to be seen that it works."""
    order = order_of(model, task.accelerator)
    return order.model_copy(update={"prompts": order.prompts[:10]}) if task.small else order


def say(line: str) -> None:
    """Progress is no result."""
    print(line, file=sys.stderr, flush=True)
