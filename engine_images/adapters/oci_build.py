"""Puts an engine on a base image and into a layout on this disk; no container daemon is asked."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import Distribution, distributions
from pathlib import Path
from platform import machine
from types import MappingProxyType

from pydantic import ValidationError

from engine_images.adapters.found_environment import PYTHON_VARIABLE
from engine_images.adapters.oci_layout import OciLayout, places_in, split_layout, write_layer
from engine_images.adapters.oci_registry import RegistryAccess, Repository
from engine_images.build.model import BuildRequest, BuiltEngine
from engine_images.choices import EnginePlatform
from engine_images.environment.recipe import DISTRIBUTION
from engine_images.errors import BadReference, BrokenImage, RegistryUnavailable
from engine_images.manifest import (
    CACHE_FOLDER,
    ENTRYPOINT_FOLDER,
    MANIFEST_FILE,
    MODEL_FOLDER,
    ROOT,
    EngineManifest,
)
from engine_images.model import EngineEnvironment
from engine_images.oci.compose import Contents, annotations_of, labels_of, manifest_bytes, planned_layers
from engine_images.oci.entrypoint_files import PACKAGE
from engine_images.oci.model import (
    CONFIG,
    INDEXES,
    MANIFEST,
    Base,
    Descriptor,
    Layer,
    Platform,
    Runtime,
    base_of,
    canonical,
    config_of,
    documents,
    manifest_for,
    manifest_of,
)
from engine_images.oci.reference import ImageReference
from engine_images.sbom import Package, sbom_of
from engine_images.signature import SigningKey
from engine_images.spec import EngineSettings

GO_NAMES = {"x86_64": "amd64", "aarch64": "arm64"}
"""How images name what Python calls a machine."""


def this_platform() -> Platform:
    """What images that are built on this machine run on."""
    return Platform(architecture=GO_NAMES.get(machine(), machine()))


def base_at(text: str, platform: Platform, access: Callable[[ImageReference], RegistryAccess]) -> Base:
    """The base that a person named: `PATH[:NAME]` of a layout, or an image in a registry by its digest.

    Raises:
        BadReference: neither of them.
        BrokenImage: none for the platform, or not what its digests say.
        RegistryRefused: it is not there, or credentials are wanted.
        RegistryUnavailable: no answer.
    """
    layout = split_layout(text)
    if layout:
        return base_in_layout(*layout, platform)
    reference = ImageReference.parse(text)
    try:
        return base_in_registry(reference, access(reference), platform)
    except RegistryUnavailable as error:
        if text.startswith(reference.registry):
            raise
        # Who wrote no registry may have meant a folder.
        raise RegistryUnavailable(
            f"no OCI layout is in {text} here, and {error.message}",
            hint="name a layout's PATH[:NAME], or REGISTRY/REPOSITORY@DIGEST",
        ) from error


@documents()
def base_in_layout(root: Path, name: str | None, platform: Platform) -> Base:
    """The image `name` in the layout `root` (the only one when None), for `platform` when it is there for several.

    Raises:
        BrokenImage: no such image, none for the platform, or not what its digests say.
    """
    layout = OciLayout(root)
    found = layout.entry(name)
    if found.media_type in INDEXES:
        found = manifest_for(layout.read(found), platform)
    manifest = layout.read(found)
    base = base_of(manifest, layout.read(Descriptor.read(manifest["config"])))
    _require(base, platform)
    return base.model_copy(update={"digest": found.digest, "layout": root})


def base_in_registry(reference: ImageReference, access: RegistryAccess, platform: Platform) -> Base:
    """The image at `reference`, which names it by digest: a tag means another image tomorrow.

    Raises:
        BadReference: without a digest; the hint has the one that the tag means now.
        BrokenImage: none for the platform, or not what its digests say.
        RegistryRefused: it is not there, or credentials are wanted.
        RegistryUnavailable: no answer.
    """
    with Repository(reference, access) as repository:
        found, content = repository.manifest(reference.name)
        if not reference.digest:
            raise BadReference(
                f"`{reference}` may be another image tomorrow: a base is named by its digest",
                hint=f"now it is {reference}@{found.digest}",
            )
        if found.media_type in INDEXES:
            with documents():
                chosen = manifest_for(json.loads(content), platform)
            found, content = repository.manifest(chosen.digest)
        with documents():
            manifest = json.loads(content)
            base = base_of(manifest, json.loads(b"".join(repository.blob(Descriptor.read(manifest["config"])))))
    _require(base, platform)
    return base.model_copy(update={"digest": found.digest, "reference": str(reference)})


def _require(base: Base, platform: Platform) -> None:
    if base.platform != platform:
        has, wants = (f"{each.os}/{each.architecture}" for each in (base.platform, platform))
        raise BrokenImage(f"the base is for {has}; expected {wants}")


def build_image(
    layout: OciLayout, *, name: str, base: Base, contents: Contents, runtime: Runtime, key: SigningKey | None = None
) -> Descriptor:
    """Write the image and let `name` name it; the same inputs give the same descriptor.

    Layers of a base from a registry stay there: pushing mounts or copies them.

    Args:
        layout: gets the blobs; a build that breaks off leaves no image in it.
        name: of the image within the layout, such as `support-llm:7`.
        base: what the image continues.
        contents: everything of ours.
        runtime: how a container of it runs; its labels are added to those that every engine has.
        key: signs the engine's manifest.

    Raises:
        BrokenImage: the manifest and the files at hand are not about the same engine.
        DiskFull: no room; the name points at what it pointed at before.
    """
    signature = key.sign(manifest_bytes(contents.manifest)) if key else None
    planned = planned_layers(contents, signature)
    copy_base(base, layout)
    layers = [write_layer(layout, layer.title, layer.files) for layer in planned]
    labelled = runtime.model_copy(update={"labels": labels_of(contents.manifest) | dict(runtime.labels)})
    return put_image(layout, name, base, layers, runtime=labelled, annotations=annotations_of(contents.manifest, base))


def put_image(
    layout: OciLayout,
    name: str,
    base: Base,
    layers: Sequence[Layer],
    *,
    runtime: Runtime,
    annotations: Mapping[str, str] = MappingProxyType({}),
) -> Descriptor:
    """Keep the documents of an image whose layers are there, and let `name` name it."""
    config = layout.put(canonical(config_of(base.config, layers, runtime, base.platform)), CONFIG)
    image = layout.put(canonical(manifest_of(config, base.layers, layers, annotations)), MANIFEST)
    layout.name(image, name)
    return image


def contents_in(root: Path, *, with_weights: bool, sbom: bytes = b"") -> Contents:
    """An engine that lies at `root` as it will in the image; folders may be links.

    Raises:
        BrokenImage: there is no manifest that can be read.
    """
    try:
        manifest = EngineManifest.model_validate_json((root / MANIFEST_FILE).read_bytes())
    except (FileNotFoundError, ValidationError) as error:
        raise BrokenImage(
            f"{root} is no engine: {MANIFEST_FILE} is missing or cannot be read",
            hint="name a folder that `tidegate engine build` wrote",
        ) from error
    return Contents(
        manifest=manifest,
        entrypoint={path: file for path, file in _files(root / ENTRYPOINT_FOLDER).items() if file.suffix != ".pyc"},
        cache=_files(root / CACHE_FOLDER),
        model=_files(root / MODEL_FOLDER) if with_weights else {},
        sbom=sbom,
    )


def _files(folder: Path) -> dict[str, Path]:
    # A link to a folder is followed only where a search begins.
    start = folder.resolve()
    return {path.relative_to(start).as_posix(): path for path in sorted(start.rglob("*")) if path.is_file()}


def copy_base(base: Base, layout: OciLayout) -> None:
    """Let `layout` hold the layers of a base that is on this machine, without a second copy where disks allow."""
    if base.layout is None or base.layout.resolve() == layout.root.resolve():
        return
    source = OciLayout(base.layout)
    for descriptor in base.layers:
        _link(source.path(descriptor), layout, descriptor)


def _link(blob: Path, layout: OciLayout, descriptor: Descriptor) -> None:
    target = layout.root / "blobs" / "sha256" / blob.name
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with suppress(OSError):
        os.link(blob, target)
        return
    with layout.writing() as copy, blob.open("rb") as file:
        shutil.copyfileobj(file, copy, 1 << 20)
        if copy.digest != descriptor.digest:
            raise BrokenImage(f"{blob} is not what its name says: it was changed", hint="build it again")


COMPILERS = ("gcc", "cc", "clang")
"""One of them is asked for: vLLM links compiled code at every start."""
PROGRAMS = ("/usr/local/bin", "/usr/bin", "/bin")


def require_base_for(settings: EngineSettings, base: Base, tell: Callable[[str], None]) -> None:
    """Look whether engines of these settings find the environment that they are built with in a base.

    Raises:
        BrokenImage: they do not; says what is missing.
        EnvironmentMissing: there is none here to build with.
    """
    # What makes an environment is no part of the core.
    from engine_images.adapters.environment import find_engine_environment

    require_environment(base, find_engine_environment(settings.accelerator.platform), tell)


def require_environment(base: Base, environment: EngineEnvironment, tell: Callable[[str], None]) -> None:
    """Look whether an engine that was built with this environment finds it in a base.

    In a registry nobody looks into gigabytes: there `tell` gets what an engine needs.

    Raises:
        BrokenImage: it does not; says what is missing.
    """
    hint = "build the engine in that image, or name a base with the environment of this machine"
    python = base.variables.get(PYTHON_VARIABLE, environment.python)
    if python != environment.python:
        raise BrokenImage(f"the base has its Python at {python}; the engine's is {environment.python}", hint=hint)
    if base.layout is None:
        tell(f"the base does not tell what it has; an engine needs vLLM {environment.vllm} at {environment.python}")
        return
    source = OciLayout(base.layout)
    places = frozenset[str]().union(*(places_in(source.path(each)) for each in base.layers))
    if missing := ", ".join(lacking_environment(places, environment)):
        raise BrokenImage(f"the base lacks {missing}", hint=hint)


def lacking_environment(places: frozenset[str], environment: EngineEnvironment) -> Iterator[str]:
    """What an image whose layers hold files at `places` lacks of the environment that engines are built with."""
    if environment.python not in places:
        yield environment.python
    if not any(f"{folder}/{name}" in places for folder in PROGRAMS for name in COMPILERS):
        yield f"a C compiler ({', '.join(COMPILERS)})"
    names = DISTRIBUTION.values() if environment.platform is EnginePlatform.CPU else ("vllm",)
    metadata = {
        f"{folder}/{name.replace('-', '_')}-{environment.vllm}.dist-info/METADATA"
        for folder in environment.site_packages
        for name in names
    }
    if metadata and not places & metadata:
        yield f"vLLM {environment.vllm} for {environment.platform} in {', '.join(environment.site_packages)}"


def pack_engine(
    layout: Path,
    name: str,
    base: Base,
    order: BuildRequest,
    built: BuiltEngine,
    *,
    with_weights: bool,
    key: SigningKey | None,
) -> Descriptor:
    """Put an engine on its base, with the SBOM of the environment that it was built in; `name` names the image."""
    sbom = sbom_of(installed_packages(order.environment.site_packages), order.model)
    contents = contents_in(built.root, with_weights=with_weights, sbom=sbom)
    # The first process is the entrypoint, on the Python of the engine environment that the base has.
    runtime = Runtime(
        entrypoint=(order.environment.python, "-m", PACKAGE, "serve"),
        environment={"PYTHONPATH": f"{ROOT}/{ENTRYPOINT_FOLDER}", "PYTHONSAFEPATH": "1"},
        workdir=ROOT,
    )
    return build_image(OciLayout(layout), name=name, base=base, contents=contents, runtime=runtime, key=key)


LONGEST_LICENCE = 80
"""Some projects put the whole text of their licence where its name belongs."""


def installed_packages(folders: Iterable[str]) -> tuple[Package, ...]:
    """What is installed in these folders of packages, by name."""
    found = {distribution.metadata["Name"]: distribution for distribution in distributions(path=list(folders))}
    return tuple(
        Package(name=name, version=found[name].version, licence=_licence(found[name])) for name in sorted(found)
    )


def _licence(distribution: Distribution) -> str:
    written = (distribution.metadata.get_all(field) for field in ("License-Expression", "License"))
    said = next((lines[0].strip() for lines in written if lines), "")
    return said if len(said) <= LONGEST_LICENCE and "\n" not in said and said != "UNKNOWN" else ""
