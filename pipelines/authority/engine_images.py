"""Which image a cluster may serve a model version from: what its tags name, and what the trust file asks of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from engine_images.errors import BadKey, BadSignature, BrokenImage
from engine_images.oci.reading import Images, prove_image
from engine_images.oci.reference import ImageReference
from engine_images.spec import EngineSettings
from pipelines.errors import NoImage, UntrustedImage
from pipelines.spec.trust import EngineTrust, SpecTrust
from registry.conventions import ENGINE_IMAGE, SERVING_TAG
from registry.model import EngineRecord, ModelVersion
from tidegate.core.text import foreign

Open = Callable[[ImageReference], AbstractContextManager[Images]]


@dataclass(frozen=True)
class TrustedImages:
    """What an image has to be before a cluster hears of it."""

    open: Open
    """Opens an image in its registry."""
    repositories: tuple[str, ...] = ()
    keys: Mapping[str, bytes] = field(default_factory=dict)
    """In PEM, by the names of their files."""

    def prove(self, version: ModelVersion, image: str) -> str:
        """Say in a few words what was proven; nothing when nothing is asked for.

        Raises:
            UntrustedImage: it is from elsewhere, not signed by one of the keys, or of other files.
            RegistryUnavailable: its registry does not answer.
        """
        reference = ImageReference.parse(image)
        if self.repositories and not any(_is_below(reference, each) for each in self.repositories):
            allowed = ", ".join(self.repositories)
            raise UntrustedImage(
                f"{version.uri}: {image} is from none of the allowed repositories: {allowed}",
                hint="push it to one of them, or add its repository to the trust file",
            )
        if not self.keys:
            return ""
        try:
            with self.open(reference) as images:
                served, signer, _ = prove_image(images, self.keys)
        except (BadSignature, BrokenImage) as error:
            raise UntrustedImage(f"{version.uri}: {image}: {error.message}", hint=error.hint) from error
        model = served.engine.model
        if (model.name, model.version, model.digest) != (version.name, version.version, version.digest):
            other = f"{model.name} {model.version}, digest {model.digest[:12]}"
            raise UntrustedImage(
                f"{version.uri}, digest {version.digest[:12]}: {image} is an engine of {other}",
                hint="build this version, and `tidegate engine push --mark` it",
            )
        return f"signed by {signer}"


def recorded_settings(version: ModelVersion, record: EngineRecord, trust: SpecTrust) -> EngineSettings:
    """What a record says of `engine`; whoever may write to MLflow may write one, so it may say no more than a spec.

    Raises:
        UntrustedImage: it is no record, or changes arguments or pods that the trust file leaves to the operator.
    """

    def refused(why: str) -> UntrustedImage:
        return UntrustedImage(
            f"{version.uri}: its recorded engine {record.name}: {why}",
            hint=f"see who wrote it; without the tag {SERVING_TAG} the spec's engine is taken",
        )

    with foreign(refused):
        settings = EngineSettings.model_validate(record.settings)
    for argument, said in trust.refused_arguments(settings):
        raise refused(f"{argument} {said!r} is not under `spec.plugins` of trust.yaml")
    if not trust.pods and "patches" in record.pods:
        raise refused("patches of its pods need `spec.pods: true` in trust.yaml")
    return settings


def keys_in(trust: EngineTrust, folder: Path) -> dict[str, bytes]:
    """The keys that the trust file names.

    Raises:
        BadKey: a file cannot be read, or holds no public key.
    """
    if not trust.keys:
        # Nothing that reads keys is loaded.
        return {}
    from engine_images.signature import read_public_key

    found = {}
    for path in trust.keys:
        where = f"engines.keys of the trust file: {folder / path}"
        try:
            found[str(path)] = (folder / path).read_bytes()
            # What is named here goes into every cluster: a private key must not.
            read_public_key(found[str(path)])
        except OSError as error:
            raise BadKey(f"{where}: {error.strerror}") from error
        except BadKey as error:
            raise BadKey(f"{where}: {error.message}") from error
    return found


def pem_of(trusted: TrustedImages | None) -> str:
    """The keys as engines read them, one after the other; empty where none is asked for."""
    keys = trusted.keys.values() if trusted else ()
    return "".join(f"{key.decode(errors='replace').strip()}\n" for key in keys)


def _is_below(reference: ImageReference, allowed: str) -> bool:
    name = f"{reference.registry}/{reference.repository}"
    return name.startswith(allowed[:-1]) if allowed.endswith("/*") else name == allowed


def pinned_image(version: ModelVersion, tags: Mapping[str, str]) -> str:
    """The image that the version's tags name, by digest.

    Raises:
        NoImage: none was pushed, or it is named by a tag, behind which another may be tomorrow.
    """
    image = tags.get(ENGINE_IMAGE)
    if not image:
        raise NoImage(
            f"{version.uri} has no engine image: its tag {ENGINE_IMAGE} is missing",
            hint=f"`tidegate engine build {version.uri} --base BASE --layout images`, then "
            f"`tidegate engine push images:{version.name}:{version.version} REGISTRY/REPOSITORY:TAG --mark`",
        )
    if not ImageReference.parse(image).digest:
        raise NoImage(
            f"{version.uri}: {image} names its engine image by a tag, which may move",
            hint="push it again with `tidegate engine push --mark`, which notes the digest",
        )
    return image
