"""Images that somebody made in order to harm the one who reads them."""

from __future__ import annotations

import io
import json
import lzma
import tarfile
from pathlib import Path

import pytest
from fakes.engines.engine_image import small_engine

from engine_images.adapters.oci_layout import OciLayout
from engine_images.errors import BrokenImage
from engine_images.oci.compose import ENGINE_LAYER
from engine_images.oci.model import LAYER, MANIFEST, TITLE, canonical
from engine_images.oci.reading import read_engine


def with_engine_layer(root: Path, layer: bytes) -> OciLayout:
    """A good image but for its engine layer."""
    layout = OciLayout(root)
    manifest = json.loads(layout.content(small_engine(root)))
    described = layout.put(layer, LAYER).to_dict() | {"annotations": {TITLE: ENGINE_LAYER}}
    layers = manifest["layers"]
    manifest["layers"] = [described if each["annotations"][TITLE] == ENGINE_LAYER else each for each in layers]
    layout.name(layout.put(canonical(manifest), MANIFEST), "hostile")
    return OciLayout(layout.root, "hostile")


def tar_of(*entries: tarfile.TarInfo) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for entry in entries:
            tar.addfile(entry, io.BytesIO(bytes(entry.size)) if entry.isreg() else None)
    return stream.getvalue()


def entry(name: str, *, size: int = 0, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.size, found.type, found.linkname = size, kind, link
    return found


def test_a_compressed_layer_is_not_unpacked(tmp_path: Path) -> None:
    layer = lzma.compress(tar_of(entry("engine/manifest.json", size=32 << 20)))
    assert len(layer) < 100_000
    with pytest.raises(BrokenImage, match="not an uncompressed tar"):
        read_engine(with_engine_layer(tmp_path, layer))


@pytest.mark.parametrize(
    "bad",
    [
        entry("engine/../etc/passwd"),
        entry("etc/passwd"),
        entry("engine/entrypoint/link", kind=tarfile.SYMTYPE, link="/etc/passwd"),
        entry("engine/entrypoint/link", kind=tarfile.LNKTYPE, link="engine/manifest.json"),
        entry("engine/entrypoint/pipe", kind=tarfile.FIFOTYPE),
    ],
    ids=lambda bad: bad.name if isinstance(bad, tarfile.TarInfo) else None,
)
def test_only_plain_files_of_the_engine_are_read(tmp_path: Path, bad: tarfile.TarInfo) -> None:
    with pytest.raises(BrokenImage, match="expected plain files below /engine"):
        read_engine(with_engine_layer(tmp_path, tar_of(bad)))


def test_a_file_that_is_there_twice_is_refused_since_readers_would_differ(tmp_path: Path) -> None:
    twice = tar_of(entry("engine/manifest.json", size=2), entry("engine/manifest.json", size=3))
    with pytest.raises(BrokenImage, match="each once"):
        read_engine(with_engine_layer(tmp_path, twice))


def test_a_configuration_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    layout = OciLayout(tmp_path)
    manifest = json.loads(layout.content(small_engine(tmp_path)))
    manifest["config"]["size"] = 3 << 30
    layout.name(layout.put(canonical(manifest), MANIFEST), "hostile")
    with pytest.raises(BrokenImage, match="configuration has 3,221,225,472 bytes"):
        read_engine(OciLayout(layout.root, "hostile"))
