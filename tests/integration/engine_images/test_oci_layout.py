"""A layout on disk: blobs are whole or not there, names point at one image, tars do not know who made them."""

import os
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine_images.adapters.oci_layout import OciLayout, write_layer
from engine_images.errors import BrokenImage
from engine_images.oci.model import MANIFEST, Descriptor, canonical


@pytest.fixture
def layout(tmp_path: Path) -> OciLayout:
    return OciLayout(tmp_path / "layout")


def layer_of(layout: OciLayout, folder: Path) -> Descriptor:
    files = {f"/engine/{path.name}": path for path in folder.iterdir()}
    return write_layer(layout, "files", files, executable=frozenset({"/engine/run"}))


def test_a_changed_blob_is_said(layout: OciLayout) -> None:
    kept = layout.put(canonical({"a": 1}), MANIFEST)
    layout.path(kept).write_bytes(canonical({"a": 2}))

    with pytest.raises(BrokenImage, match="it was changed"):
        layout.read(kept)


def test_a_blob_cut_short_is_said_with_both_sizes(layout: OciLayout) -> None:
    kept = layout.put(b"x" * 10, MANIFEST)
    os.truncate(layout.path(kept), 4)

    with pytest.raises(BrokenImage, match="has 4 bytes; expected 10"):
        layout.path(kept)


def test_nothing_is_left_of_a_blob_that_broke_off(layout: OciLayout) -> None:
    with pytest.raises(KeyboardInterrupt), layout.writing() as blob:
        blob.write(b"half")
        raise KeyboardInterrupt

    assert list((layout.root / "blobs" / "sha256").iterdir()) == []


def test_a_name_moves_from_one_image_to_the_next(layout: OciLayout) -> None:
    first, second = layout.put(b"{}", MANIFEST), layout.put(b'{"a":1}', MANIFEST)
    layout.name(first, "support-llm:7")
    layout.name(second, "support-llm:7")
    layout.name(first, "support-llm:6")

    assert layout.find("support-llm:7") == second
    assert layout.find("support-llm:6") == first
    assert layout.find(first.digest) == first


def test_images_that_are_named_at_once_all_keep_their_names(layout: OciLayout) -> None:
    kept = layout.put(b"{}", MANIFEST)
    names = [f"support-llm:{version}" for version in range(40)]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: layout.name(kept, name), names))

    assert all(layout.find(name) == kept for name in names)


def test_an_unknown_name_is_answered_with_those_that_are_there(layout: OciLayout) -> None:
    layout.name(layout.put(b"{}", MANIFEST), "support-llm:7")

    with pytest.raises(BrokenImage, match="it has: support-llm:7"):
        layout.find("support-llm:8")


def test_files_with_other_times_modes_and_order_give_the_same_layer(layout: OciLayout, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder, names in ((one, ("run", "b", "a")), (two, ("a", "b", "run"))):
        folder.mkdir()
        for name in names:
            (folder / name).write_text(name)
    os.utime(two / "a", (1, 1))
    (two / "b").chmod(0o600)

    assert layer_of(layout, one) == layer_of(layout, two)


def test_a_layer_holds_folders_modes_and_nobody(layout: OciLayout, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "run").write_text("#!/bin/sh\n")
    (tmp_path / "files" / "data").write_text("x")
    layer = layer_of(layout, tmp_path / "files")

    with tarfile.open(layout.path(layer)) as tar:
        members = tar.getmembers()

    assert [member.name for member in members] == ["engine", "engine/data", "engine/run"]
    assert [member.mode for member in members] == [0o755, 0o644, 0o755]
    assert {(member.uid, member.gid, member.uname, member.mtime) for member in members} == {(0, 0, "", 0)}


def test_links_are_read_through(layout: OciLayout, tmp_path: Path) -> None:
    (tmp_path / "blob").write_text("weights")
    (tmp_path / "link").symlink_to(tmp_path / "blob")

    linked = write_layer(layout, "weights", {"/engine/w": tmp_path / "link"})
    direct = write_layer(layout, "weights", {"/engine/w": tmp_path / "blob"})

    assert linked == direct
