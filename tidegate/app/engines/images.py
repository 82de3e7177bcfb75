"""What an engine's image holds, where it goes, whose it is; and the image of tidegate itself, which steps run in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine_images.errors import BrokenImage
from engine_images.manifest import ROOT, SBOM_FILE, ModelContract
from engine_images.oci.inspect import EngineImage, manifest_in
from engine_images.oci.reading import ImageProof, prove_image, read_engine, read_engine_files
from engine_images.oci.reference import ImageReference
from engine_images.oci.transfers import PushResult, Transfer
from engine_images.signature import SigningKey
from pipelines.adapters.registry_login import RegistryLogin
from pipelines.ports import VersionRegistry
from registry.conventions import ENGINE_IMAGE
from registry.model import ModelVersion
from tidegate import __version__
from tidegate.app.engines.keys import read_key
from tidegate.app.wiring.engines.images import (
    ImagePlace,
    StoredImage,
    base_for_this_machine,
    environment_made_here,
    toolchain_files,
)
from tidegate.core.process import note


def read_image(name: str, login: RegistryLogin) -> EngineImage:
    """What the image holds, without its large layers."""
    with login.opened(name) as images:
        return read_engine(images)


def prove_named_image(name: str, key: Path, login: RegistryLogin) -> ImageProof:
    """Prove whose an image is.

    Raises:
        BadSignature: it is not signed by the key.
        BrokenImage: something in it was changed.
    """
    public = read_key(key)
    with login.opened(name) as images:
        return prove_image(images, {str(key): public})


@dataclass(frozen=True)
class PushedEngine:
    """What is in the registry now."""

    image: PushResult
    sbom: str | None
    """The digest of what was attached."""
    signature: str | None
    """Its tag."""


def push_engine(
    source: str,
    reference: str,
    login: RegistryLogin,
    sign_key: Path | None,
    marks: VersionRegistry | None,
    *,
    tell: Callable[[Transfer], None],
) -> PushedEngine:
    """Push, attach the SBOM, sign; then say it on the model version in `marks`, where there is one.

    Raises:
        BrokenImage: `source` is no image of an engine, or serves other files than the registered.
        RegistryRefused: the registry will not have it.
    """
    stored, target = StoredImage.named(source), ImageReference.parse(reference)
    # Before anything is sent: a key that cannot be read would leave an image without its signature.
    key = SigningKey(read_key(sign_key)) if sign_key else None
    files = read_engine_files(stored.images)
    version = _version_of(source, manifest_in(files).model, marks) if marks else None
    pushed = stored.push(target, login, tell)
    sbom = files.get(f"{ROOT}/{SBOM_FILE}")
    attached = stored.attach_sbom(sbom, target, login) if sbom else None
    signature = stored.sign(key, target, login) if key else None
    if marks and version:
        marks.mark(version, {ENGINE_IMAGE: pushed.reference})
        note(f"{version.uri} is served from it")
    return PushedEngine(pushed, attached, signature)


def _version_of(source: str, model: ModelContract, registry: VersionRegistry) -> ModelVersion:
    """The registered version that the image serves.

    Raises:
        BrokenImage: it serves other files than the registered.
    """
    version = registry.resolve(model.name, model.version)
    if version.digest != model.digest:
        raise BrokenImage(
            f"{source} serves other files than those registered as {version.uri}", hint="build it from this registry"
        )
    return version


@dataclass(frozen=True)
class ToolchainOptions:
    """What the person asked for."""

    installed: Path
    base: str
    layout: Path
    push: str | None
    whole: bool
    """Pack all that is installed, and not only what steps need."""
    extras: tuple[str, ...] = ()
    """Of tidegate's extras, which to pack next to what every step needs."""


@dataclass(frozen=True)
class BuiltBase:
    """An image that others continue or run in."""

    place: ImagePlace
    digest: str
    pushed: str | None
    """Its reference in the registry."""


def build_step_image(request: ToolchainOptions, login: RegistryLogin) -> BuiltBase:
    """Build, and push where a registry is named."""
    target = ImageReference.parse(request.push) if request.push else None
    place = ImagePlace(request.layout, f"tidegate:{__version__}")
    # Before a registry is asked for anything.
    files = toolchain_files(request.installed, whole=request.whole, extras=request.extras)
    image = place.pack_toolchain(base_for_this_machine(request.base, login), files)
    pushed = image.push(target, login).reference if target else None
    return BuiltBase(place, image.descriptor.digest, pushed)


def build_engine_base(
    base: str, layout: Path, push: str | None, login: RegistryLogin, *, tell: Callable[[Transfer], None]
) -> BuiltBase:
    """Put the engine environment of this machine on the operating system `base`; push where a registry is named.

    Raises:
        EnvironmentMissing: there is none yet.
        UsageError: it is somebody else's, whose own image is its base.
    """
    target = ImageReference.parse(push) if push else None
    environment = environment_made_here()
    place = ImagePlace(layout, f"engine-base:{environment.vllm}-{environment.platform}")
    system = base_for_this_machine(base, login)
    note(f"packing vLLM {environment.vllm} for {environment.platform}, {environment.python}")
    image = place.pack_environment(system, environment)
    pushed = image.push(target, login, tell).reference if target else None
    return BuiltBase(place, image.descriptor.digest, pushed)
