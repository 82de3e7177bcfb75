"""`tidegate engine build`: a model version becomes an engine, and an image if there is a base for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from engine_images.adapters.engine_root import PACKAGE
from engine_images.adapters.installed_packages import installed_packages
from engine_images.adapters.oci_base import base_at
from engine_images.adapters.oci_build import build_image, contents_in
from engine_images.adapters.oci_layout import OciLayout
from engine_images.build.model import Built, Order, Record
from engine_images.compile.proof import Started
from engine_images.manifest import ENTRYPOINT_FOLDER, ROOT
from engine_images.oci.compose import Contents
from engine_images.oci.model import Descriptor, Runtime
from engine_images.sbom import sbom_of
from engine_images.signature import SigningKey
from pipelines.state import StateFolder
from registry.conventions import ENGINE, ENGINE_PROOF, name_and_reference
from tidegate.cli.compose import local_engines, open_registry, read_spec
from tidegate.cli.engine_images import Login, this_platform
from tidegate.cli.engine_view import aligned, in_bytes, read_key
from tidegate.cli.output import note, print_json


@dataclass(frozen=True)
class Request:
    """What a person asked for."""

    model: str
    """models:/NAME/VERSION, or models:/NAME@ALIAS."""
    spec: Path
    state: Path
    tracking_uri: str | None
    base: str | None
    layout: Path | None
    with_weights: bool
    sign_key: Path | None


def run(request: Request, login: Login, *, as_json: bool) -> int:
    """Build, and pack what was built."""
    # Before minutes of compiling: a key or a base that cannot be read.
    key = SigningKey(read_key(request.sign_key)) if request.sign_key else None
    base = base_at(request.base, this_platform(), login.access) if request.base else None
    spec, state = read_spec(request.spec), StateFolder(request.state)
    registry = open_registry(request.state, request.tracking_uri)
    version = registry.resolve(*name_and_reference(request.model))
    order, built = asyncio.run(local_engines(spec, state, registry).build(version, note))
    registry.mark(version, {ENGINE: built.engine, ENGINE_PROOF: in_one_line(built.record)})
    image = None
    if base:
        layout, name = request.layout or state.images, f"{version.name}:{version.version}"
        contents = _contents(order, built, with_weights=request.with_weights)
        descriptor = build_image(
            OciLayout(layout), name=name, base=base, contents=contents, runtime=_runtime(order), key=key
        )
        image = (f"{layout}:{name}", descriptor)
    if as_json:
        print_json(_document(built, image))
        return 0
    print(f"engine  {built.engine}{', found' if built.found else ''}")
    print(f"at      {built.root}")
    if image:
        print(f"image   {image[0]}, {image[1].digest}")
    for line in aligned([("start", "seconds", "initialization", "memory"), *_starts(built.record)]):
        print(line)
    if agreement := built.record.agreement:
        print(
            f"log-probabilities of {agreement.tokens:,} tokens differ from eager's by {agreement.largest:.2g} at most "
            f"(p99 {agreement.p99:.2g}, accepted {built.record.tolerance:g})"
        )
    return 0


def _contents(order: Order, built: Built, *, with_weights: bool) -> Contents:
    home = Path(order.environment.python).parent.parent
    return contents_in(built.root, with_weights=with_weights, sbom=sbom_of(installed_packages(home), order.model))


def _runtime(order: Order) -> Runtime:
    """The container's first process: the entrypoint, on the Python of the engine environment that the base has."""
    return Runtime(
        entrypoint=(order.environment.python, "-m", PACKAGE, "serve"),
        environment={"PYTHONPATH": f"{ROOT}/{ENTRYPOINT_FOLDER}", "PYTHONSAFEPATH": "1"},
        workdir=ROOT,
    )


def _starts(record: Record) -> list[tuple[str, ...]]:
    starts = {"cold": record.cold, "built": record.built, "eager": record.eager}
    return [_start(what, started) for what, started in starts.items() if started]


def _start(what: str, started: Started) -> tuple[str, ...]:
    init = started.log.init_seconds
    return what, f"{started.seconds:.1f}", "" if init is None else f"{init:.1f} s", in_bytes(started.memory_bytes)


def in_one_line(record: Record) -> str:
    """What was proven, for the model version."""
    if not (record.cold and record.built and record.agreement):
        return "runs eagerly: nothing is compiled"
    return (
        f"first answer after {record.built.seconds:.1f} s, {record.cold.seconds:.1f} s without its compile cache; "
        f"log-probabilities within {record.agreement.largest:.2g} of eager's, {record.tolerance:g} accepted"
    )


def _document(built: Built, image: tuple[str, Descriptor] | None) -> dict[str, object]:
    # The keys have a thousand factors each; they are beside the logs of the build.
    keys = {start: {"key"} for start in ("cold", "built", "eager") if getattr(built.record, start)}
    return {
        "engine": built.engine,
        "found": built.found,
        "root": str(built.root),
        "image": {"name": image[0], "digest": image[1].digest, "size": image[1].size} if image else None,
        "record": built.record.model_dump(mode="json", exclude=keys),
    }
