"""A small engine: real documents and files, nothing that would take vLLM to make."""

from __future__ import annotations

import hashlib
from pathlib import Path

from engine_images.adapters.engine_root import entrypoint_files
from engine_images.adapters.oci_build import build_image
from engine_images.adapters.oci_layer import write_layer
from engine_images.adapters.oci_layout import OciLayout
from engine_images.manifest import CompileKey, EngineManifest, Launch, ModelContract
from engine_images.oci.base import Base
from engine_images.oci.compose import Contents, Files
from engine_images.oci.image import config_of, manifest_of
from engine_images.oci.model import CONFIG, MANIFEST, Descriptor, Platform, Runtime, canonical
from engine_images.signature import SigningKey

AMD64 = Platform(architecture="amd64")
RUNTIME = Runtime(entrypoint=("/opt/venv/bin/python", "/engine/entrypoint"), workdir="/engine")
STARTED = Runtime(entrypoint=("/opt/venv/bin/python", "-m", "tidegate_entrypoint", "serve"), workdir="/engine")
ENTRYPOINT: Files = {"__main__.py": b"print('ready')\n"}
CACHE: Files = {"aot/rank_0_0/model": b"compiled", "aot/kernel.so": b"\x7fELF"}
MODEL: Files = {"model.safetensors": b"w" * 5000, "tokenizer.json": b"{}"}
FACTORS = {"vllm": "0.32.0", "torch": "2.13.0", "cpu": "avx512"}


def digests(files: Files) -> dict[str, str]:
    return {name: hashlib.sha256(_content(source)).hexdigest() for name, source in files.items()}


def contents(
    *,
    version: str = "7",
    model: Files = MODEL,
    cache: Files = CACHE,
    arguments: tuple[str, ...] = ("--port", "{port}"),
    factors: dict[str, str] | None = None,
    sbom: bytes = b"",
    with_weights: bool = True,
    entrypoint: Files = ENTRYPOINT,
    digest: str = "d" * 64,
) -> Contents:
    manifest = EngineManifest(
        engine="e" * 64,
        model=ModelContract(name="support-llm", version=version, digest=digest, files=digests(model)),
        launch=Launch(arguments=arguments, environment={}, drain_seconds=30),
        key=CompileKey(factors=factors or FACTORS),
        cache=digests(cache),
    )
    return Contents(
        manifest=manifest, entrypoint=entrypoint, cache=cache, model=model if with_weights else {}, sbom=sbom
    )


def small_base(root: Path, name: str = "base", *, layers: int = 2) -> Descriptor:
    """An image of `layers` layers in the layout `root`."""
    layout = OciLayout(root)
    made = [
        write_layer(layout, f"{name} {number}", {f"/base/{name}-{number}": b"b" * 1000}, executable=frozenset())
        for number in range(layers)
    ]
    runtime = Runtime(entrypoint=("/bin/sh",), environment={"PATH": "/opt/venv/bin:/usr/bin"})
    config = layout.put(canonical(config_of({}, made, runtime, AMD64)), CONFIG)
    image = layout.put(canonical(manifest_of(config, (), made, {})), MANIFEST)
    layout.name(image, name)
    return image


def real_engine(root: Path, *, runtime: Runtime | None = None, **other: object) -> Descriptor:
    """As `small_engine`, with the entrypoint and the first process that a build gives it."""
    return small_engine(root, runtime=runtime or STARTED, **{"entrypoint": entrypoint_files(), **other})  # type: ignore[arg-type]


def small_engine(
    root: Path,
    *,
    base: Base | None = None,
    name: str = "support-llm:7",
    key: SigningKey | None = None,
    runtime: Runtime = RUNTIME,
    **other: object,
) -> Descriptor:
    """An engine's image in the layout `root`; `other` goes to `contents`."""
    return build_image(
        OciLayout(root),
        name=name,
        base=base or Base(platform=AMD64),
        contents=contents(**other),  # type: ignore[arg-type]
        runtime=runtime,
        key=key,
    )


def _content(source: Path | bytes) -> bytes:
    return source if isinstance(source, bytes) else source.read_bytes()
