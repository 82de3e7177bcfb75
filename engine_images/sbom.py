"""What an engine consists of, in CycloneDX 1.6: the packages that run it, the model's files with their hashes. Pure.

So it is for tidegate itself, which a release describes in the same words.

Nothing here depends on when it was written: the serial number follows from the content, and the time is the
beginning of time, as everywhere in an image.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import distributions
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from engine_images.manifest import Digests, ModelContract
from tidegate.core.model import Value

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SAME_CONTENT = uuid5(NAMESPACE_URL, "https://cyclonedx.org/tidegate/engine")
"""The family of our serial numbers."""


class Package(Value):
    """One installed Python distribution."""

    name: str
    version: str


def installed_packages(folders: Iterable[str]) -> tuple[Package, ...]:
    """What is installed in these folders of packages, by name."""
    found = {distribution.metadata["Name"]: distribution.version for distribution in distributions(path=list(folders))}
    return tuple(Package(name=name, version=found[name]) for name in sorted(found))


def sbom_of(packages: Sequence[Package], model: ModelContract) -> bytes:
    """The bill of materials as JSON; the same packages and model in any order give the same bytes."""
    engine = Component(
        type=ComponentType.CONTAINER,
        name=model.name,
        version=model.version,
        bom_ref="engine",
        properties=[Property(name="dev.tidegate.model.digest", value=model.digest)],
    )
    parts = [_model(model), *(_library(package) for package in packages)]
    return _written(engine, parts, [model.model_dump_json(), *_lines(packages)])


def sbom_of_application(name: str, version: str, packages: Sequence[Package], files: Mapping[str, str]) -> bytes:
    """The bill of materials of a Python application, of what an environment of it holds, and of its own files.

    `files` are what is published, with their SHA-256.
    """
    application = Component(
        type=ComponentType.APPLICATION,
        name=name,
        version=version,
        bom_ref=name,
        purl=PackageURL("pypi", name=name, version=version),
        components=[
            Component(type=ComponentType.FILE, name=file, bom_ref=f"file/{file}", hashes=[_sha256(digest)])
            for file, digest in files.items()
        ],
    )
    parts = [_library(package) for package in packages]
    held = [f"{file} {files[file]}" for file in sorted(files)]
    return _written(application, parts, [f"{name} {version}", *held, *_lines(packages)])


def _written(whole: Component, parts: Sequence[Component], content: Sequence[str]) -> bytes:
    """The bill of materials of `whole`; its serial number follows from the lines of its content."""
    digest = hashlib.sha256("\n".join(content).encode()).hexdigest()
    bom = Bom(
        serial_number=uuid5(SAME_CONTENT, digest),
        metadata=BomMetaData(component=whole, timestamp=EPOCH),
        components=parts,
    )
    bom.register_dependency(whole, parts)
    return make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1).encode()


def _model(model: ModelContract) -> Component:
    return Component(
        type=ComponentType.MACHINE_LEARNING_MODEL,
        name=model.name,
        version=model.version,
        bom_ref="model",
        hashes=[_sha256(model.digest)],
        components=_files(model.files),
    )


def _files(digests: Digests) -> Iterable[Component]:
    return (
        Component(type=ComponentType.FILE, name=path, bom_ref=f"model/{path}", hashes=[_sha256(digest)])
        for path, digest in digests.items()
    )


def _library(package: Package) -> Component:
    url = PackageURL("pypi", name=package.name, version=package.version)
    return Component(
        type=ComponentType.LIBRARY,
        name=package.name,
        version=package.version,
        bom_ref=str(url),
        purl=url,
    )


def _sha256(digest: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=digest.removeprefix("sha256:"))


def _lines(packages: Sequence[Package]) -> list[str]:
    return sorted(package.model_dump_json() for package in packages)
