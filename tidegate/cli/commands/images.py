"""`tidegate engine inspect`, `push`, `verify`, and `workflow image`: what is said of images."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from engine_images.manifest import CACHE_FOLDER, ROOT
from engine_images.oci.inspect import EngineImage
from engine_images.oci.transfers import Transfer
from pipelines.adapters.registry_login import RegistryLogin
from pipelines.ports import VersionRegistry
from tidegate.app.engines import images
from tidegate.app.engines.images import BuiltBase, ToolchainOptions, prove_named_image, read_image
from tidegate.cli.engine_images import aligned, at_most, short
from tidegate.cli.output import Output, print_data, say
from tidegate.core.process import note
from tidegate.core.text import in_bytes

FILES = 40


def show_image(name: str, login: RegistryLogin, *, output: Output) -> int:
    """Print what it holds."""
    image = read_image(name, login)
    if output.is_data:
        print_data(image.model_dump(mode="json") | {"size": image.size}, output)
        return 0
    say(*_contents(image))
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


def push_engine(
    source: str,
    reference: str,
    login: RegistryLogin,
    sign_key: Path | None,
    marks: VersionRegistry | None,
    *,
    output: Output,
) -> int:
    """Tell how the push goes, and print the reference."""
    pushed = images.push_engine(source, reference, login, sign_key, marks, tell=_tell)
    if output.is_data:
        added = {"sbom": pushed.sbom, "signature": pushed.signature}
        print_data(pushed.image.model_dump(mode="json") | added, output)
    else:
        print(pushed.image.reference)
    return 0


def _tell(transfer: Transfer) -> None:
    if transfer.done < transfer.size:
        note(f"{transfer.title}: {in_bytes(transfer.done)} of {in_bytes(transfer.size)}")
    else:
        note(f"{transfer.title}: {transfer.how}, {in_bytes(transfer.size)}")


BY_MANIFEST = "the model's files, the compile cache, vLLM's arguments"
BY_IMAGE = "everything: base, entrypoint, first process, user, variables, every layer"
BY_LOOK = "entrypoint, first process and user are this tidegate's own; base, variables, other layers nobody's word"


def verify_image(name: str, key: Path, login: RegistryLogin, *, output: Output) -> int:
    """Say what was proven; anything else is an error."""
    proof = prove_named_image(name, key, login)
    if output.is_data:
        covered = {"manifest": proof.manifest_by, "image": proof.image_by}
        print_data({"image": name, "digest": proof.image.digest, "verified": True, "signed_by": covered}, output)
        return 0
    whole = ("image", f"signed by {proof.image_by}", BY_IMAGE) if proof.image_by else ("image", "not signed", BY_LOOK)
    say(f"{name}: {proof.image.digest}")
    say(*aligned([("engine's manifest", f"signed by {proof.manifest_by}", BY_MANIFEST), whole]))
    return 0


def build_engine_base(base: str, layout: Path, push: str | None, login: RegistryLogin, *, output: Output) -> int:
    """Print where the image is."""
    return _built(images.build_engine_base(base, layout, push, login, tell=_tell), output)


def build_step_image(request: ToolchainOptions, login: RegistryLogin, *, output: Output) -> int:
    """Print where the image is."""
    return _built(images.build_step_image(request, login), output)


def _built(built: BuiltBase, output: Output) -> int:
    if output.is_data:
        print_data({"image": str(built.place), "digest": built.digest, "pushed": built.pushed}, output)
    else:
        print(built.pushed or f"{built.place}, {built.digest}")
    return 0
