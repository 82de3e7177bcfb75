"""Builds what makes engines ready: from the pinned environment on this machine, or from images that were proven."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine_images.choices import CompileMode, EnginePlatform
from engine_images.spec import EngineSettings
from pipelines.adapters.image_engines import ImageEngines
from pipelines.adapters.trust import named_trust
from pipelines.authority.engine_images import TrustedImages
from pipelines.plan.prebuilt import image_launch
from pipelines.ports import EngineProvider
from pipelines.spec.delivery import Delivery
from pipelines.spec.sections import LocalFleet
from pipelines.state import StateFolder
from registry.model import ModelVersion
from registry.versions import MlflowRegistry
from rollouts.manifests.spec import ArgoFleetSpec, ClusterFleetSpec
from rollouts.model import ImageLaunch
from tidegate.core.clock import SystemClock
from tidegate.core.errors import OutsideError
from tidegate.core.process import note

if TYPE_CHECKING:
    from pipelines.adapters.local_engines import LocalEngines


def engine_provider(
    spec: Delivery,
    state: StateFolder,
    registry: MlflowRegistry,
    images: Mapping[str, str] | None = None,
    trusted: TrustedImages | None = None,
) -> EngineProvider:
    """What makes a model version ready for the spec's fleet; `images` are those that a plan settled."""
    if isinstance(spec.fleet, ClusterFleetSpec):
        engines = ImageEngines(registry, state, spec.metadata.name, images or {}, trusted, settings=spec.engine)
        return _image_engines(spec, spec.fleet, engines) if isinstance(spec.fleet, ArgoFleetSpec) else engines
    return local_engines(spec, state, registry)


def _image_engines(spec: Delivery, fleet: ArgoFleetSpec, engines: ImageEngines) -> ImageEngines:
    """The same, which know of images that tidegate did not build."""

    def launch_of(version: ModelVersion, settings: EngineSettings) -> ImageLaunch | None:
        return image_launch(spec, fleet, settings, version=version.version, digest=version.digest)

    return replace(engines, launch_of=launch_of, allowed=named_trust().trust.spec)


def local_engines(
    spec: Delivery,
    state: StateFolder,
    registry: MlflowRegistry,
) -> LocalEngines:
    """Engines of the pinned environment on this machine.

    Raises:
        OutsideError: when the environment is not there; the hint says how to make it.
    """
    from engine_images.adapters.builder import Builder
    from engine_images.adapters.environment import find_engine_environment
    from engine_images.build.engine_store import EngineStore
    from pipelines.adapters.local_engines import BuildServers, LocalEngines

    # Stable and canary always share the cores; a thread more than there are cores costs more than it brings.
    threads = max(1, (os.cpu_count() or 1) // 2)
    name, environment = spec.metadata.name, find_engine_environment(spec.engine.accelerator.platform)
    return LocalEngines(
        registry=registry,
        settings=spec.engine,
        environment=environment,
        state=state,
        builder=Builder(EngineStore(state.builds), BuildServers(SystemClock(), name=name)),
        name=name,
        threads=threads,
        allowed=named_trust().trust.spec,
    )


def require_machine_for(settings: EngineSettings) -> None:
    """Look whether an engine of these settings can be compiled and proven on this machine.

    Raises:
        OutsideError: the environment, or the accelerator, is not here.
    """
    from engine_images.adapters.environment import find_engine_environment
    from engine_images.adapters.gpus import require_accelerator

    if settings.compile.mode is CompileMode.NONE:
        return
    require_accelerator(settings.accelerator, settings.accelerator_count)
    find_engine_environment(settings.accelerator.platform)


def require_gpus_here(spec: Delivery) -> None:
    """Look whether a fleet on this machine has the accelerators of its engines; nothing of clusters.

    Raises:
        OutsideError: it has others, or fewer.
    """
    from engine_images.adapters.gpus import TO_SERVE, require_accelerator

    if isinstance(spec.fleet, LocalFleet):
        require_accelerator(spec.engine.accelerator, spec.engine.accelerator_count, hint=TO_SERVE)


def require_engine_environment(settings: EngineSettings) -> None:
    """Look whether the environment of these engines is there on this machine.

    Raises:
        OutsideError: it is not, or is for other accelerators; the hint says how to make it.
    """
    from engine_images.adapters.environment import find_engine_environment

    find_engine_environment(settings.accelerator.platform)


def set_up_machine(wheels: Path | None = None, platform: EnginePlatform = EnginePlatform.CPU) -> None:
    """Bring what engines for `platform` and a fleet on this machine need, and note what is there.

    From a folder of `wheels` without a network.

    Raises:
        OutsideError: something cannot be installed from here; the hint is the command to run. Everything else was.
    """
    from engine_images.adapters.environment import ensure_engine_environment, ensure_system_packages

    missing: OutsideError | None = None
    try:
        ensure_system_packages(note)
    except OutsideError as error:
        note(str(error))
        missing = error
    environment = ensure_engine_environment(note, wheels, platform)
    state, built_for = (
        "ready" if missing is None else "made",
        "" if platform is EnginePlatform.CPU else f" for {platform}",
    )
    note(f"{state}: vLLM {environment.vllm}{built_for} at {Path(environment.python).parents[1]}")
    if missing:
        raise missing
