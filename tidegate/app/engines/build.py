"""A model version becomes an engine, and an image if there is a base for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from engine_images.build.model import BuildRecord, BuildRequest, BuiltEngine
from engine_images.manifest import ENTRYPOINT_FOLDER, ROOT
from engine_images.oci.entrypoint_files import PACKAGE
from engine_images.oci.model import Descriptor, Runtime
from engine_images.signature import SigningKey
from pipelines.adapters.engines import local_engines, require_machine_for
from pipelines.adapters.registry_login import RegistryLogin
from pipelines.adapters.specs import read_spec
from pipelines.adapters.stores import NotedAdoption, open_registry
from pipelines.state import StateFolder
from registry.conventions import ENGINE, ENGINE_PROOF, name_and_reference
from tidegate.app.engines.keys import read_key
from tidegate.app.wiring.engines.images import ImagePlace, base_for_this_machine, require_base_for
from tidegate.core.process import note


@dataclass(frozen=True)
class EngineBuildOptions:
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


@dataclass(frozen=True)
class PackedEngine:
    """What was built, and packed where there was a base."""

    built: BuiltEngine
    place: ImagePlace | None = None
    image: Descriptor | None = None


def build_engine(request: EngineBuildOptions, login: RegistryLogin) -> PackedEngine:
    """Build, note on the model version what was proven, and pack what was built.

    Raises:
        UsageError: a key cannot be read
        NotProven: what was built is not loaded again, or is another model than the eager one.
        OutsideError: the engine is for an accelerator that this machine has not.
    """
    # Before minutes of compiling: a name that means no version, a key or a base that cannot be read.
    name, reference = name_and_reference(request.model)
    key = SigningKey(read_key(request.sign_key)) if request.sign_key else None
    base = base_for_this_machine(request.base, login) if request.base else None
    spec, state = read_spec(request.spec), StateFolder(request.state)
    require_machine_for(spec.engine)
    if base:
        require_base_for(spec.engine, base)
    registry = open_registry(request.state, request.tracking_uri)
    version = registry.adopt(name, reference, progress=NotedAdoption())
    engines = local_engines(spec, state, registry, request.spec.parent, asks_golden_set=True)
    order, built = asyncio.run(engines.build(version, note))
    registry.mark(version, {ENGINE: built.engine, ENGINE_PROOF: in_one_line(built.record)})
    if base is None:
        return PackedEngine(built)
    place = ImagePlace(request.layout or state.images, f"{version.name}:{version.version}")
    image = place.pack_engine(order, built, base, _runtime(order), with_weights=request.with_weights, key=key)
    return PackedEngine(built, place, image)


def _runtime(order: BuildRequest) -> Runtime:
    """The container's first process: the entrypoint, on the Python of the engine environment that the base has."""
    return Runtime(
        entrypoint=(order.environment.python, "-m", PACKAGE, "serve"),
        environment={"PYTHONPATH": f"{ROOT}/{ENTRYPOINT_FOLDER}", "PYTHONSAFEPATH": "1"},
        workdir=ROOT,
    )


def in_one_line(record: BuildRecord) -> str:
    """What was proven, for the model version."""
    changed = (
        f"; quantized, {record.quantization.mean:.2g} from the original in the mean" if record.quantization else ""
    )
    if golden := record.golden:
        changed += f"; golden set {golden.quantized:.3g}, {golden.original:.3g} by the original"
    if not (record.cold and record.built and record.agreement):
        return f"runs eagerly: nothing is compiled{changed}"
    agreement = record.agreement
    return (
        f"first answer after {record.built.seconds:.1f} s, {record.cold.seconds:.1f} s without its compile cache; "
        f"log-probabilities within {agreement.largest:.2g} of eager's, {record.tolerance:g} accepted{changed}"
    )
