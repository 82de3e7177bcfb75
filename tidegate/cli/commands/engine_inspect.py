"""`tidegate engine inspect`: what an engine's image holds."""

from __future__ import annotations

from collections.abc import Iterator

from engine_images.adapters.oci_read import read_engine
from engine_images.manifest import CACHE_FOLDER, ROOT
from engine_images.oci.inspect import EngineImage
from tidegate.cli.engine_images import Login, opened
from tidegate.cli.engine_view import aligned, at_most, in_bytes, short
from tidegate.cli.output import print_json

FILES = 40


def run(name: str, login: Login, *, as_json: bool) -> int:
    """Print it."""
    with opened(name, login) as images:
        image = read_engine(images)
    if as_json:
        print_json(image.model_dump(mode="json") | {"size": image.size})
        return 0
    print("\n".join(_lines(image)))
    return 0


def _lines(image: EngineImage) -> Iterator[str]:
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
