"""Puts an engine on a base image and into a layout on this disk; no container daemon is asked."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from platform import machine
from types import MappingProxyType

from pydantic import ValidationError

from engine_images.adapters.found_environment import PYTHON_VARIABLE
from engine_images.adapters.oci_layout import OciLayout, split_layout, write_layer
from engine_images.adapters.oci_read import AccessOf, opened_reference
from engine_images.build.model import BuildRequest, BuiltEngine
from engine_images.errors import BadReference, BrokenImage
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
    MEANS,
    Base,
    Descriptor,
    Platform,
    Runtime,
    canonical,
    config_of,
    documents,
    manifest_for,
    platform_of,
)
from engine_images.oci.reading import Images
from engine_images.oci.reference import ImageReference
from engine_images.sbom import installed_packages, sbom_of
from engine_images.signature import SigningKey

GO_NAMES = {"x86_64": "amd64", "aarch64": "arm64"}
"""How images name what Python calls a machine."""


def this_platform() -> Platform:
    """What images that are built on this machine run on."""
    return Platform(architecture=GO_NAMES.get(machine(), machine()))


def base_at(text: str, platform: Platform, access: AccessOf | None = None) -> Base:
    """The base that a person named: `PATH[:NAME]` of a layout, or an image in a registry by its digest.

    A tag means another image tomorrow.

    Raises:
        BadReference: neither of them; the hint has the digest that a tag means now.
        BrokenImage: no such image, none for the platform, or not what its digests say.
        RegistryRefused: it is not there, or credentials are wanted.
        RegistryUnavailable: no answer.
    """
    layout = split_layout(text)
    if layout:
        return _base_in(OciLayout(*layout), platform).model_copy(update={"layout": layout[0]})
    reference = ImageReference.parse(text)
    with opened_reference(reference, access) as images:
        if not reference.digest:
            raise BadReference(
                f"`{reference}` may be another image tomorrow: a base is named by its digest",
                hint=f"now it is {reference}@{images.manifest()[0].digest}",
            )
        return _base_in(images, platform).model_copy(update={"reference": str(reference)})


@documents()
def _base_in(images: Images, platform: Platform) -> Base:
    found, content = images.manifest()
    if found.media_type in INDEXES:
        found = manifest_for(json.loads(content), platform)
        content = images.content(found)
    manifest = json.loads(content)
    config = json.loads(images.content(Descriptor.read(manifest["config"])))
    if (has := platform_of(config)) != platform:
        there, wanted = (f"{each.os}/{each.architecture}" for each in (has, platform))
        raise BrokenImage(f"the base is for {there}; expected {wanted}")
    layers = [Descriptor.read(layer) for layer in manifest["layers"]]
    return Base(
        platform=platform,
        digest=found.digest,
        config=config,
        layers=tuple(
            layer.model_copy(update={"media_type": MEANS.get(layer.media_type, layer.media_type), "annotations": {}})
            for layer in layers
        ),
    )


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
        DiskFull: no room; the name points at what it pointed at before.
    """
    signature = key.sign(manifest_bytes(contents.manifest)) if key else None
    planned = planned_layers(contents, signature)
    copy_base(base, layout)
    layers = [write_layer(layout, title, files) for title, files in planned.items()]
    labelled = runtime.model_copy(update={"labels": labels_of(contents.manifest) | dict(runtime.labels)})
    return put_image(layout, name, base, layers, runtime=labelled, annotations=annotations_of(contents.manifest, base))


def put_image(
    layout: OciLayout,
    name: str,
    base: Base,
    layers: Sequence[Descriptor],
    *,
    runtime: Runtime,
    annotations: Mapping[str, str] = MappingProxyType({}),
) -> Descriptor:
    """Keep the documents of an image whose layers are there, and let `name` name it."""
    config = layout.put(canonical(config_of(base.config, layers, runtime, base.platform)), CONFIG)
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config.to_dict(),
        "layers": [layer.to_dict() for layer in (*base.layers, *layers)],
        "annotations": dict(annotations),
    }
    image = layout.put(canonical(manifest), MANIFEST)
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
        blob = source.path(descriptor)
        target = layout.root / "blobs" / "sha256" / blob.name
        if target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(blob, target)
        except OSError:
            with layout.writing() as copy, blob.open("rb") as file:
                shutil.copyfileobj(file, copy, 1 << 20)
                if copy.digest != descriptor.digest:
                    raise BrokenImage(
                        f"{blob} is not what its name says: it was changed", hint="build it again"
                    ) from None


def require_base_for(base: Base, environment: EngineEnvironment, tell: Callable[[str], None]) -> None:
    """Look whether a base says that its Python is another one than that of the environment that engines are built with.

    Nobody looks into its gigabytes: `tell` gets what an engine needs.

    Raises:
        BrokenImage: it does.
    """
    python = base.variables.get(PYTHON_VARIABLE, environment.python)
    if python != environment.python:
        raise BrokenImage(
            f"the base has its Python at {python}; the engine's is {environment.python}",
            hint="build the engine in that image, or name a base with the environment of this machine",
        )
    tell(f"the base must have vLLM {environment.vllm} at {environment.python}, and a C compiler")


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
