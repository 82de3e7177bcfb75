"""Puts an engine, or tidegate itself, on a base image and into a layout on this disk; no container daemon is asked.

What is installed is read from the distributions' own metadata: no other Python is started.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from packaging.utils import canonicalize_name
from pydantic import ValidationError

from engine_images.adapters.oci_layout import OciLayout, places_in, split_layout, write_layer
from engine_images.adapters.oci_registry import RegistryAccess, Repository
from engine_images.errors import BadReference, BrokenImage, RegistryUnavailable
from engine_images.manifest import CACHE_FOLDER, ENTRYPOINT_FOLDER, MANIFEST_FILE, MODEL_FOLDER, EngineManifest
from engine_images.model import EngineEnvironment
from engine_images.oci.compose import Contents, PlannedLayer, annotations_of, labels_of, manifest_bytes, planned_layers
from engine_images.oci.environment import (
    environment_layers,
    environment_runtime,
    lacking,
    lacking_environment,
    other_environment,
)
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
from engine_images.oci.toolchain import (
    COMMAND,
    HOME,
    US,
    missing,
    toolchain_layers,
    toolchain_runtime,
)
from engine_images.sbom import Package
from engine_images.signature import SigningKey

COMPILE = """
import sys
from py_compile import PycInvalidationMode, PyCompileError, compile

for line in sys.stdin.read().splitlines():
    source, place, target = line.split("\\t")
    try:
        compile(source, target, place, doraise=True, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
    except (PyCompileError, SyntaxError, ValueError):
        continue  # Such as a template: the one who imports it meets the error.
"""


def with_bytecode(files: Mapping[str, Path], folder: Path) -> dict[str, Path]:
    """The files, by their absolute places in the image, and the bytecode of all modules among them.

    `folder` gets the bytecode.

    Raises:
        BrokenImage: Python could not be run.
    """
    made = {place: _cached(place) for place in sorted(files) if place.endswith(".py")}
    targets = {cached: folder / cached.lstrip("/") for cached in made.values()}
    lines = [f"{files[place]}\t{place}\t{targets[cached]}" for place, cached in made.items()]
    environment = {"PATH": os.environ.get("PATH", ""), "PYTHONHASHSEED": "0"}
    ended = subprocess.run(
        [sys.executable, "-s", "-S", "-W", "ignore", "-c", COMPILE],
        input="\n".join(lines),
        env=environment,
        text=True,
        check=False,
    )
    if ended.returncode != 0:
        raise BrokenImage(f"{sys.executable} could not compile the modules", hint="its output is above")
    return {**files, **{cached: path for cached, path in targets.items() if path.exists()}}


def _cached(place: str) -> str:
    path = PurePosixPath(place)
    return str(path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc")


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
    layers = [write_layer(layout, layer.title, layer.files, executable=frozenset()) for layer in planned]
    labelled = runtime.model_copy(update={"labels": labels_of(contents.manifest) | dict(runtime.labels)})
    return _put_image(layout, name, base, layers, runtime=labelled, annotations=annotations_of(contents.manifest, base))


def _put_image(
    layout: OciLayout,
    name: str,
    base: Base,
    layers: Sequence[Layer],
    *,
    runtime: Runtime,
    annotations: Mapping[str, str],
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


OF_THE_SYSTEM = (Path("/"), Path("/usr"), Path("/usr/local"))
"""Where a Python lies that is the operating system's, or an image's of Python: the base brings it."""
NOT_OF_PYTHON = frozenset({"__pycache__", "site-packages", "test", "tests", "idlelib"})
"""Folders of an interpreter: what tests it, an editor, and what somebody installed next to it."""

FOR_A_TERMINAL = ("_tkinter", "_curses", "readline", "_dbm", "_gdbm")
"""Modules of Python that no server imports: what they load need not be there."""


def require_environment(base: Base, environment: EngineEnvironment) -> bool:
    """Whether an engine that was built with this environment finds it in a base; False where nothing can tell.

    Raises:
        BrokenImage: it does not; says what is missing.
    """
    hint = "`tidegate engine base` makes one with the engine environment of this machine"
    other = other_environment(base, environment)
    if other:
        raise BrokenImage(f"the base has another engine environment: {other}", hint=hint)
    if other is None and base.layout is not None:
        missing_there = ", ".join(lacking_environment(_places_in(base), environment))
        if missing_there:
            raise BrokenImage(f"the base lacks {missing_there}", hint=hint)
    return other is not None or base.layout is not None


def _places_in(base: Base) -> frozenset[str]:
    """What the layers of a base on this disk hold."""
    assert base.layout is not None, "only of a base on this disk"
    source = OciLayout(base.layout)
    return frozenset[str]().union(*(places_in(source.path(each)) for each in base.layers))


def build_environment(layout: OciLayout, *, name: str, base: Base, environment: EngineEnvironment) -> Descriptor:
    """Put the engine environment of this machine on an operating system, at the same places; `name` names the image.

    Raises:
        BrokenImage: `base` lies on this disk and lacks what an engine environment needs.
        DiskFull: no room; the name points at what it pointed at before.
    """
    home, python = Path(environment.python).parents[1], Path(environment.python).resolve()
    prefix = python.parents[1]
    foreign = prefix in OF_THE_SYSTEM
    if base.layout is not None:
        libraries = frozenset() if foreign else _libraries_of(python)
        own_python = str(python) if foreign else ""
        missing_there = ", ".join(lacking(_places_in(base), python=own_python, libraries=libraries))
        if missing_there:
            raise BrokenImage(f"the base lacks {missing_there}", hint="install it there, as a layer")
    files, links = _tree(home, frozenset())
    with TemporaryDirectory(prefix="tidegate-") as folder:
        if not foreign:
            own, own_links = _tree(prefix, NOT_OF_PYTHON)
            files, links = {**files, **with_bytecode(own, Path(folder))}, {**links, **own_links}
        executable = frozenset(place for place, path in files.items() if os.access(path, os.X_OK))
        copy_base(base, layout)
        layers = [
            write_layer(layout, each.title, each.files, executable=executable, links=each.links)
            for each in environment_layers(str(home), files, links)
        ]
    runtime, annotations = environment_runtime(base, environment), base.continued_as("engine environment")
    return _put_image(layout, name, base, layers, runtime=runtime, annotations=annotations)


def _libraries_of(python: Path) -> frozenset[str]:
    """The shared libraries that an interpreter and its own modules load from outside of its folder, by name."""
    prefix = python.parents[1]
    modules = [python, *prefix.glob("lib/python3*/lib-dynload/*.so")]
    modules = [module for module in modules if not module.name.startswith(FOR_A_TERMINAL)]
    told = subprocess.run(["ldd", *map(str, modules)], capture_output=True, text=True, check=False).stdout
    found = (Path(line.split("=> ")[1].split()[0]) for line in told.splitlines() if "=> /" in line)
    return frozenset(path.name for path in found if not path.is_relative_to(prefix))


def _tree(root: Path, without: frozenset[str]) -> tuple[dict[str, Path], dict[str, str]]:
    """Files and symbolic links below a folder, by absolute path; folders of the names `without` are left out."""
    files: dict[str, Path] = {}
    links: dict[str, str] = {}
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - without)
        for path in (Path(folder, name) for name in sorted([*names, *folders])):
            if path.is_symlink():
                links[str(path)] = str(path.readlink())
            elif path.is_file():
                files[str(path)] = path
    return files, links


def build_toolchain(layout: OciLayout, *, name: str, base: Base, files: Mapping[str, Path]) -> Descriptor:
    """Write the image and let `name` name it; the same files, by their places, give the same descriptor.

    Raises:
        BrokenImage: tidegate is not among them.
        DiskFull: no room; the name points at what it pointed at before.
    """
    planned = toolchain_layers(files)
    executable = {f"{HOME}/{place}" for place, path in files.items() if os.access(path, os.X_OK)} | {COMMAND}
    copy_base(base, layout)
    with TemporaryDirectory(prefix="tidegate-") as folder:
        compiled = [_compiled(each, Path(folder, each.title)) for each in planned]
        layers = [write_layer(layout, each.title, each.files, executable=frozenset(executable)) for each in compiled]
    return _put_image(layout, name, base, layers, runtime=toolchain_runtime(base), annotations=base.continued_as(US))


def _compiled(layer: PlannedLayer, folder: Path) -> PlannedLayer:
    sources = {place: source for place, source in layer.files.items() if isinstance(source, Path)}
    return replace(layer, files={**layer.files, **with_bytecode(sources, folder)})


LEFT_OUT = frozenset({"__pycache__", "tests"})
"""Folders that nobody imports: what Python made while it ran, and what tests a library."""
SOURCES = (".c", ".cpp", ".f90", ".h", ".pxd", ".pyi", ".pyx")
"""Of what was compiled, and of types: nobody reads them while a program runs."""


def distribution_files(
    folder: Path, chosen: Callable[[Mapping[str, list[str]]], frozenset[str]], *, leaves: Sequence[str] = ()
) -> dict[str, Path]:
    """Files by their places in the folder: ours, and those of the distributions that `chosen` picks.

    `chosen` gets what each distribution requires; what lies below one of `leaves` stays out.

    Raises:
        BrokenImage: tidegate itself was not installed there.
    """
    there: dict[str, Distribution] = {canonicalize_name(each.name): each for each in distributions(path=[str(folder)])}
    if US not in there:
        raise missing(US)
    wanted = chosen({name: each.requires or [] for name, each in there.items()})
    found: dict[str, Path] = {}
    for name in sorted(wanted):
        found |= _files_of(folder, there[name])
    below = tuple(f"{leaf}/" for leaf in leaves)
    found = {place: path for place, path in found.items() if not place.startswith(below)}
    return dict(sorted(found.items()))


def every_file(folder: Path) -> dict[str, Path]:
    """All files by their places in the folder, without what Python makes of them while it runs."""
    found = ((path.relative_to(folder), path) for path in sorted(folder.rglob("*")) if path.is_file())
    return {place.as_posix(): path for place, path in found if "__pycache__" not in place.parts}


def _files_of(folder: Path, distribution: Distribution) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for file in distribution.files or []:
        place, path = PurePosixPath(file), folder / file
        # A record names scripts by their way out of the folder that it describes.
        out = ".." in place.parts or LEFT_OUT & set(place.parts) or place.suffix in SOURCES
        if not out and path.is_file():
            found[place.as_posix()] = path
    return found


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
