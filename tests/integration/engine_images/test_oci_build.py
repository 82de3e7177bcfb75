"""Images in a layout: reproducible, whole or not there, signed in a way that openssl accepts."""

import base64
import subprocess
import tarfile
from pathlib import Path

import pytest
from fakes.engines.engine_image import AMD64, MODEL, RUNTIME, contents, new_signing_key, small_base, small_engine

from engine_images.adapters.oci_build import base_at, build_image, contents_in
from engine_images.adapters.oci_layout import OciLayout
from engine_images.entrypoint.manifest import prove_signature
from engine_images.errors import DiskFull
from engine_images.oci.compose import manifest_bytes
from engine_images.oci.model import INDEX, LAYER, MANIFEST, Base, Descriptor, canonical


def test_the_same_engine_built_twice_is_one_digest(tmp_path: Path) -> None:
    key = new_signing_key()
    one, two = (small_engine(tmp_path / name, key=key) for name in ("one", "two"))

    assert one == two


def test_an_engine_continues_a_base_from_a_layout(tmp_path: Path) -> None:
    image = small_base(tmp_path / "base")
    base = base_at(str(tmp_path / "base"), AMD64)
    layout = OciLayout(tmp_path / "engine")

    manifest = layout.read(small_engine(layout.root, base=base))

    assert base.digest == image.digest
    layers = [Descriptor.read(layer) for layer in manifest["layers"]]
    assert tuple(layers[:2]) == base.layers
    assert all(layout.path(layer) for layer in layers)
    assert manifest["annotations"]["org.opencontainers.image.base.digest"] == image.digest
    # No second copy of gigabytes on one disk.
    assert layout.path(layers[0]).stat().st_nlink == 2


def test_the_platform_s_image_of_an_index_is_taken_and_docker_s_word_for_a_layer_is_oci_s(tmp_path: Path) -> None:
    layout = OciLayout(tmp_path)
    manifest = layout.read(small_base(tmp_path))
    manifest["layers"][0]["mediaType"] = "application/vnd.docker.image.rootfs.diff.tar.gzip"
    image = layout.put(canonical(manifest), MANIFEST)
    entry = image.to_dict() | {"platform": {"architecture": "amd64", "os": "linux"}}
    several = layout.put(canonical({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}), INDEX)
    layout.name(several, "several")

    base = base_at(f"{tmp_path}:several", AMD64)
    assert base.digest == image.digest
    kinds = [(layer.media_type, layer.annotations) for layer in base.layers]
    assert kinds == [("application/vnd.oci.image.layer.v1.tar+gzip", {}), (LAYER, {})]


def test_another_weight_changes_only_the_layers_that_hold_or_name_it(tmp_path: Path) -> None:
    layout = OciLayout(tmp_path)
    one = layout.read(small_engine(tmp_path, name="one"))
    two = layout.read(small_engine(tmp_path, name="two", model={**MODEL, "model.safetensors": b"v" * 5000}))

    same = [a["digest"] == b["digest"] for a, b in zip(one["layers"], two["layers"], strict=True)]
    assert same == [False, True, False]


def test_openssl_and_the_entrypoint_accept_the_signature_of_the_manifest_in_the_image(tmp_path: Path) -> None:
    layout, key = OciLayout(tmp_path / "layout"), new_signing_key()
    engine = Descriptor.read(layout.read(small_engine(layout.root, key=key))["layers"][0])
    with tarfile.open(layout.path(engine)) as tar:
        tar.extractall(tmp_path, filter="data")
    (tmp_path / "public.pem").write_bytes(key.public_pem)
    signature = tmp_path / "engine/manifest.json.sig"
    (tmp_path / "der").write_bytes(base64.b64decode(signature.read_bytes()))

    check = ["openssl", "dgst", "-sha256", "-verify", "public.pem", "-signature", "der", "engine/manifest.json"]
    said = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert said == "Verified OK\n"
    prove_signature(tmp_path / "public.pem", (tmp_path / "engine/manifest.json").read_bytes(), signature)


def test_a_build_that_breaks_off_leaves_the_name_where_it_was(tmp_path: Path) -> None:
    layout = OciLayout(tmp_path)
    before = small_engine(tmp_path)

    weights = tmp_path / "weights"
    weights.write_bytes(b"w")
    described = contents(model={"model.safetensors": weights})
    weights.unlink()

    with pytest.raises(FileNotFoundError):
        build_image(layout, name="support-llm:7", base=Base(platform=AMD64), contents=described, runtime=RUNTIME)

    assert layout.find("support-llm:7") == before
    assert list((tmp_path / "blobs" / "sha256").glob("*.partial")) == []


def test_a_full_disk_leaves_no_image(small_disk: Path) -> None:
    before = small_engine(small_disk)

    with pytest.raises(DiskFull, match="no room left"):
        small_engine(small_disk, model={"model.safetensors": b"w" * 3_000_000})

    assert OciLayout(small_disk).find("support-llm:7") == before
    assert list((small_disk / "blobs" / "sha256").glob("*.partial")) == []


def test_an_engine_laid_out_on_disk_is_packed_as_it_lies_there(tmp_path: Path) -> None:
    """As a build leaves it: links to the model and the cache, which many engines share."""
    described = contents(sbom=b"{}")
    root = tmp_path / "root"
    for folder, files in (
        ("entrypoint", described.entrypoint),
        ("elsewhere", described.model),
        ("cache", described.cache),
    ):
        for name, content in files.items():
            path = root.joinpath(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.read_bytes())
    # What Python leaves there when the engine was started once.
    (root / "entrypoint" / "__pycache__").mkdir()
    (root / "entrypoint" / "__pycache__" / "x.pyc").write_bytes(b"other every time")
    (root / "elsewhere").rename(tmp_path / "model")
    (root / "model").symlink_to(tmp_path / "model", target_is_directory=True)
    (root / "manifest.json").write_bytes(manifest_bytes(described.manifest))
    layout = OciLayout(tmp_path / "layout")

    image = build_image(
        layout,
        name="support-llm:7",
        base=Base(platform=AMD64),
        contents=contents_in(root, with_weights=True, sbom=b"{}"),
        runtime=RUNTIME,
    )

    assert image == small_engine(tmp_path / "other", sbom=b"{}")
    assert contents_in(root, with_weights=False).model == {}
