"""`tidegate engine inspect`, `diff`, `push`, `verify`: what an engine's image holds, where it goes, whose it is.

`tidegate workflow image` makes the image of the toolchain that steps run in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from engine_images.adapters.oci_build import base_at, build_toolchain, distribution_files, every_file
from engine_images.adapters.oci_layout import OciLayout, split_layout
from engine_images.adapters.oci_push import Transfer, attach_sbom, push_image, sign_image
from engine_images.adapters.oci_read import InLayout, prove_image, read_engine, read_engine_files
from engine_images.errors import BrokenImage
from engine_images.manifest import CACHE_FOLDER, ROOT, SBOM_FILE, ModelContract
from engine_images.oci.inspect import EngineDifference, EngineImage, differences, manifest_in
from engine_images.oci.reference import ImageReference
from engine_images.oci.toolchain import STEPS, PackingList, packed_distributions
from engine_images.signature import SigningKey
from registry.conventions import ENGINE_IMAGE
from registry.model import ModelVersion
from tidegate import __version__
from tidegate.app.process import note
from tidegate.cli.engine_images import (
    RegistryLogin,
    aligned,
    at_most,
    in_bytes,
    opened,
    read_key,
    short,
    shortened,
    this_platform,
    wait_for_registry,
)
from tidegate.cli.output import OutputForm, print_data

if TYPE_CHECKING:
    from registry.adapters.mlflow_models import MlflowRegistry

FILES = 40


def show_image(name: str, login: RegistryLogin, *, output: OutputForm) -> int:
    """Print it."""
    with opened(name, login) as images:
        image = read_engine(images)
    if output.is_data:
        print_data(image.model_dump(mode="json") | {"size": image.size}, output)
        return 0
    print("\n".join(_contents(image)))
    return 0


def _contents(image: EngineImage) -> Iterator[str]:
    engine = image.engine
    model = engine.model
    weights = "in the image" if any("/model/" in path for path in image.files) else f"pulled from {model.source or '?'}"
    yield from aligned(
        [
            ("image", image.digest),
            ("platform", f"{image.platform.os}/{image.platform.architecture}, {in_bytes(image.size)}"),
            ("engine", engine.engine),
            (
                "model",
                f"{model.name}:{model.version}, {len(model.files)} files {weights}, digest {short(model.digest)}",
            ),
            ("arguments", " ".join(engine.launch.arguments)),
            ("drain", f"{engine.launch.drain_seconds} s"),
            ("signature", "of the engine's manifest" if image.signature else "none"),
            ("packages", f"{len(image.packages)} in the SBOM" if image.packages else "no SBOM"),
        ]
    )
    yield "\nlayers"
    yield from aligned([(f"  {layer.title}", in_bytes(layer.size), layer.digest) for layer in image.layers])
    if engine.key:
        yield f"\ncompile key {short(engine.key.digest)}"
        yield from aligned([(f"  {name}", engine.key.factors[name]) for name in sorted(engine.key.factors)])
    yield "\nfiles"
    # Those of the compile cache last: they are many, and their names mean nothing to people.
    paths = sorted(image.files, key=lambda path: (path.startswith(f"{ROOT}/{CACHE_FOLDER}/"), path))
    yield from at_most([f"  {short(image.files[path])}  {path}" for path in paths], FILES)


NOTHING = "-"


def show_difference(a: str, b: str, login: RegistryLogin, *, output: OutputForm) -> int:
    """Print every difference."""
    with opened(a, login) as first, opened(b, login) as second:
        one, two = read_engine(first), read_engine(second)
    found = differences(one, two)
    if output.is_data:
        print_data(
            {"a": one.digest, "b": two.digest, "differences": [each.model_dump(mode="json") for each in found]}, output
        )
        return 0
    print("\n".join(_differences(found)) if found else "no difference in what the engines hold")
    return 0


def _differences(found: Sequence[EngineDifference]) -> Iterator[str]:
    for part, group in groupby(found, lambda each: each.part):
        yield f"{part}"
        rows = [(f"  {each.name}", f"{_said(each.a)} -> {_said(each.b)}") for each in group]
        yield from at_most(list(aligned(rows)))


def _said(value: str | None) -> str:
    return NOTHING if value is None else shortened(value) or '""'


def push_engine(
    source: str,
    reference: str,
    login: RegistryLogin,
    sign_key: Path | None,
    marks: MlflowRegistry | None,
    *,
    output: OutputForm,
) -> int:
    """Push, attach the SBOM, sign; then say it on the model version in `marks`, where there is one."""
    found, target = split_layout(source), ImageReference.parse(reference)
    if found is None:
        raise BrokenImage(f"{source} is no OCI layout")
    # Before anything is sent: a key that cannot be read would leave an image without its signature.
    key = SigningKey(read_key(sign_key)) if sign_key else None
    layout, name = OciLayout(found[0]), found[1]
    image, files = layout.manifest(name), read_engine_files(InLayout(layout, name))
    version = _version_of(source, manifest_in(files).model, marks) if marks else None
    pushed = push_image(layout, image, target, login.access, _tell, wait_for_registry)
    sbom = files.get(f"{ROOT}/{SBOM_FILE}")
    attached = attach_sbom(image, target, sbom, login.access, wait_for_registry).digest if sbom else None
    signature = sign_image(image, target, key, login.access, wait_for_registry) if key else None
    if marks and version:
        marks.mark(version, {ENGINE_IMAGE: pushed.reference})
        note(f"{version.uri} is served from it")
    if output.is_data:
        print_data(pushed.model_dump(mode="json") | {"sbom": attached, "signature": signature}, output)
    else:
        print(pushed.reference)
    return 0


def _version_of(source: str, model: ModelContract, registry: MlflowRegistry) -> ModelVersion:
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


def _tell(transfer: Transfer) -> None:
    if transfer.done < transfer.size:
        note(f"{transfer.title}: {in_bytes(transfer.done)} of {in_bytes(transfer.size)}")
    else:
        note(f"{transfer.title}: {transfer.how}, {in_bytes(transfer.size)}")


BY_MANIFEST = "the model's files, the compile cache, vLLM's arguments"
BY_IMAGE = "everything: base, entrypoint, first process, user, variables, every layer"
BY_LOOK = "entrypoint, first process and user are this tidegate's own; base, variables, other layers nobody's word"


def verify_image(name: str, key: Path, login: RegistryLogin, *, output: OutputForm) -> int:
    """Say what was proven; anything else is an error."""
    public = read_key(key)
    with opened(name, login) as images:
        proof = prove_image(images, {str(key): public})
    if output.is_data:
        covered = {"manifest": proof.manifest_by, "image": proof.image_by}
        print_data({"image": name, "digest": proof.image.digest, "verified": True, "signed_by": covered}, output)
        return 0
    whole = ("image", f"signed by {proof.image_by}", BY_IMAGE) if proof.image_by else ("image", "not signed", BY_LOOK)
    print(f"{name}: {proof.image.digest}")
    for line in aligned([("engine's manifest", f"signed by {proof.manifest_by}", BY_MANIFEST), whole]):
        print(line)
    return 0


@dataclass(frozen=True)
class ToolchainOptions:
    """What the person asked for."""

    installed: Path
    base: str
    layout: Path
    push: str | None
    whole: bool
    """Pack all that is installed, and not only what steps need."""


def build_step_image(request: ToolchainOptions, login: RegistryLogin, *, output: OutputForm) -> int:
    """Build, and push where a registry is named."""
    target = ImageReference.parse(request.push) if request.push else None
    base = base_at(request.base, this_platform(), login.access)
    layout, name = OciLayout(request.layout), f"tidegate:{__version__}"
    image = build_toolchain(layout, name=name, base=base, files=_files(request))
    pushed = push_image(layout, image, target, login.access, sleep=wait_for_registry).reference if target else None
    if output.is_data:
        print_data({"image": f"{request.layout}:{name}", "digest": image.digest, "pushed": pushed}, output)
    else:
        print(pushed or f"{request.layout}:{name}, {image.digest}")
    return 0


def _files(request: ToolchainOptions) -> Mapping[str, Path]:
    if request.whole:
        return every_file(request.installed)
    needs = PackingList.read(STEPS)
    return distribution_files(
        request.installed, lambda requires: packed_distributions(needs, requires), leaves=needs.leaves
    )
