"""Builds what makes engines ready: from the pinned environment on this machine, or from images that were proven."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine_images.choices import CompileMode, EnginePlatform
from engine_images.spec import EngineSettings
from pipelines.adapters.trust import named_trust
from pipelines.authority.engine_images import TrustedImages, pinned_image, recorded_settings
from pipelines.plan.prebuilt import image_launch
from pipelines.ports import EngineProvider
from pipelines.spec.delivery import Delivery
from pipelines.spec.sections import LocalFleet
from pipelines.spec.trust import SpecTrust
from pipelines.state import StateFolder
from registry.conventions import ENGINE_IMAGE
from registry.model import EngineRecord, ModelVersion
from registry.versions import MlflowRegistry
from rollouts.manifests.spec import ArgoFleetSpec, ClusterFleetSpec
from rollouts.model import NOT_OURS_TO_START, PORT, Engine, ImageLaunch
from tidegate.core.clock import SystemClock
from tidegate.core.errors import OutsideError
from tidegate.core.process import note
from tidegate.core.threads import call_in_thread

if TYPE_CHECKING:
    from pipelines.adapters.local_engines import LocalEngines


Progress = Callable[[str], None]
LaunchOf = Callable[[ModelVersion, EngineSettings], ImageLaunch | None]
"""How a version's image is started by these settings; None for one that tidegate built."""


@dataclass(frozen=True)
class ImageEngines:
    """Engines as images; nothing is built or started on this machine."""

    registry: MlflowRegistry
    state: StateFolder
    name: str
    """What requests carry in their `model` field."""
    images: Mapping[str, str] = field(default_factory=dict)
    """What the delivery's plan settled, by the version's number; a tag that moved since changes nothing."""
    trusted: TrustedImages | None = None
    """What an image has to be, asked in every region again; anything will do when None."""
    settings: EngineSettings | None = None
    """Of the spec; None where every version has an image of its own, which its tags name."""
    launch_of: LaunchOf = lambda *_: None
    allowed: SpecTrust = field(default_factory=SpecTrust)
    """What records of engines may say, as specs may."""

    def folder(self, version: ModelVersion) -> Path:
        """Where the version's files are, once prepared: its tokenizer is asked what a conversation's tokens are."""
        return self.state.engines / version.digest / "model"

    async def prepare(self, version: ModelVersion, progress: Progress, record: EngineRecord | None = None) -> Engine:
        """The version's image, and its files in place and proven against their digests.

        Raises:
            NoImage: none was pushed, or it is named by a tag, behind which another may be tomorrow.
            UntrustedImage: it, or its record, is not what the trust file allows, or is of another version.
        """
        tags = await call_in_thread(self.registry.tags, version)
        settings = recorded_settings(version, record, self.allowed) if record else self.settings
        image = self._image(version, tags, record)
        prebuilt = settings.image if settings else None
        theirs = image == NOT_OURS_TO_START
        proven = await call_in_thread(self.trusted.prove, version, image) if self.trusted and not theirs else ""
        now = tags.get(ENGINE_IMAGE)
        # A tag that was changed after the plan was made.
        moved = not prebuilt and not theirs and now != image
        since = f", as planned; its tag {ENGINE_IMAGE} says {now or 'nothing'} since" if moved else ""
        served = "by engines that others start" if theirs else f"from {image}"
        progress(f"{version.uri} is served {served}{since}{f', {proven}' if proven else ''}")
        await call_in_thread(self.registry.download, version, self.folder(version).parent)
        return Engine(
            version=record.name if record else version.version,
            digest=version.digest,
            model=self.name,
            image=image,
            launch=self.launch_of(version, settings) if settings and prebuilt else None,
            pods=record.pods if record else None,
        )

    def _image(self, version: ModelVersion, tags: Mapping[str, str], record: EngineRecord | None) -> str:
        """Of the record; else as planned, as the spec says, or as the version's tags name it."""
        if record and record.image:
            return record.image
        own = self.settings.image.reference if self.settings and self.settings.image else ""
        return self.images.get(version.version) or own or pinned_image(version, tags)


@dataclass(frozen=True)
class DownloadedEngines:
    """Engines whose files are on this machine; nothing is built or started."""

    registry: MlflowRegistry
    state: StateFolder
    name: str
    """What requests carry in their `model` field."""

    def folder(self, version: ModelVersion) -> Path:
        """Where the version's files are, once prepared."""
        return self.state.engines / version.digest / "model"

    async def prepare(
        self, version: ModelVersion, progress: Callable[[str], None], record: EngineRecord | None = None
    ) -> Engine:
        """The image that the version's tags name, or else vLLM's command for its files."""
        progress(f"{version.uri}: bringing its files")
        folder = self.folder(version)
        await call_in_thread(self.registry.download, version, folder.parent)
        image = (await call_in_thread(self.registry.tags, version)).get(ENGINE_IMAGE, "")
        command = () if image else ("vllm", "serve", str(folder), "--port", PORT)
        return Engine(
            version=record.name if record else version.version,
            digest=version.digest,
            model=self.name,
            image=image,
            command=command,
            workdir=str(folder),
        )


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
        if not isinstance(fleet := spec.fleet, ArgoFleetSpec):
            return engines

        def launch_of(version: ModelVersion, settings: EngineSettings) -> ImageLaunch | None:
            return image_launch(spec, fleet, settings, version=version.version, digest=version.digest)

        return replace(engines, launch_of=launch_of, allowed=named_trust().trust.spec)
    return local_engines(spec, state, registry)


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
    state, built_for = "made" if missing else "ready", "" if platform is EnginePlatform.CPU else f" for {platform}"
    note(f"{state}: vLLM {environment.vllm}{built_for} at {Path(environment.python).parents[1]}")
    if missing:
        raise missing
