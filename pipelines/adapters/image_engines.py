"""A model version of the registry becomes an engine that clusters can run: its image was built and pushed before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engine_images.spec import EngineSettings
from pipelines.authority.engine_images import TrustedImages, pinned_image, recorded_settings
from pipelines.spec.trust import SpecTrust
from pipelines.state import StateFolder
from registry.conventions import ENGINE_IMAGE
from registry.model import EngineRecord, ModelVersion
from registry.versions import MlflowRegistry
from rollouts.model import NOT_OURS_TO_START, Engine, ImageLaunch
from tidegate.core.threads import call_in_thread

Progress = Callable[[str], None]
LaunchOf = Callable[[ModelVersion, EngineSettings], ImageLaunch | None]
"""How a version's image is started by these settings; None for one that tidegate built."""


def _known_by_itself(_: ModelVersion, __: EngineSettings) -> None:
    """An image that tidegate built."""


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
    launch_of: LaunchOf = _known_by_itself
    allowed: SpecTrust = field(default_factory=SpecTrust)
    """What records of engines may say, as specs may."""

    def folder(self, version: ModelVersion) -> Path:
        """Where the version's files are, once prepared: its tokenizer is asked what a conversation's tokens are."""
        return self._workdir(version) / "model"

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
        since = "" if prebuilt or theirs else _since(image, tags)
        served = "by engines that others start" if theirs else f"from {image}"
        progress(f"{version.uri} is served {served}{since}{f', {proven}' if proven else ''}")
        await call_in_thread(self.registry.download, version, self._workdir(version))
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

    def _workdir(self, version: ModelVersion) -> Path:
        return self.state.engines / version.digest


def _since(image: str, tags: Mapping[str, str]) -> str:
    """What to say of a tag that was changed after the plan was made."""
    now = tags.get(ENGINE_IMAGE)
    return "" if now == image else f", as planned; its tag {ENGINE_IMAGE} says {now or 'nothing'} since"
