"""A registered version becomes an engine for clusters: its files proven, its image by digest, and a trusted one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from fakes.delivery.registry import FakeRegistry
from fakes.engines.engine_image import new_signing_key, small_engine

from engine_images.adapters.oci_layout import OciLayout
from engine_images.adapters.oci_read import InLayout
from engine_images.errors import BadKey
from engine_images.oci.reading import Images
from engine_images.oci.reference import ImageReference
from engine_images.oci.signatures import signed_payload
from pipelines.adapters.engines import ImageEngines
from pipelines.authority.engine_images import Open, TrustedImages, keys_in
from pipelines.errors import NoImage, UntrustedImage
from pipelines.spec.trust import EngineTrust, SpecTrust
from pipelines.state import StateFolder
from registry.conventions import ENGINE_IMAGE
from registry.errors import DigestMismatch
from registry.model import EngineRecord, ModelVersion
from tidegate.core.errors import ExitCode
from tidegate.testing import write_tiny_model

IMAGE = "registry.example/team/support-llm@sha256:" + "7" * 64


@pytest.fixture
def registry() -> FakeRegistry:
    return FakeRegistry()


@pytest.fixture
def version(registry: FakeRegistry, tmp_path: Path) -> ModelVersion:
    return registry.register("support-llm", write_tiny_model(tmp_path / "model"))


@pytest.fixture
def engines(registry: FakeRegistry, tmp_path: Path) -> ImageEngines:
    return ImageEngines(registry=registry, state=StateFolder(tmp_path / "state"), name="support-llm")


async def test_an_engine_is_the_image_that_the_version_names(
    engines: ImageEngines, registry: FakeRegistry, version: ModelVersion
) -> None:
    registry.mark(version, {ENGINE_IMAGE: IMAGE})
    said: list[str] = []
    engine = await engines.prepare(version, said.append)
    assert (engine.image, engine.version, engine.digest) == (IMAGE, "1", version.digest)
    assert (engine.command, engine.model) == ((), "support-llm")
    assert said == [f"models:/support-llm/1 is served from {IMAGE}"]


async def test_a_version_without_an_image_says_how_to_make_one(engines: ImageEngines, version: ModelVersion) -> None:
    with pytest.raises(NoImage) as caught:
        await engines.prepare(version, print)
    assert caught.value.message == "models:/support-llm/1 has no engine image: its tag tidegate.engine.image is missing"
    assert "tidegate engine build models:/support-llm/1" in str(caught.value.hint)
    assert "tidegate engine push images:support-llm:1 REGISTRY/REPOSITORY:TAG --mark" in str(caught.value.hint)


async def test_an_image_named_by_a_tag_is_not_served(
    engines: ImageEngines, registry: FakeRegistry, version: ModelVersion
) -> None:
    registry.mark(version, {ENGINE_IMAGE: "registry.example/team/support-llm:7"})
    with pytest.raises(NoImage, match="by a tag, which may move"):
        await engines.prepare(version, print)


async def test_files_that_were_changed_in_the_store_stop_it(
    engines: ImageEngines, registry: FakeRegistry, version: ModelVersion
) -> None:
    registry.mark(version, {ENGINE_IMAGE: IMAGE})
    registry.change(version, "config.json", b"{}")
    with pytest.raises(DigestMismatch):
        await engines.prepare(version, print)


async def test_a_tag_that_changes_after_the_plan_was_made_changes_nothing_and_is_told(
    engines: ImageEngines, registry: FakeRegistry, version: ModelVersion
) -> None:
    registry.mark(version, {ENGINE_IMAGE: IMAGE})
    planned = replace(engines, images={version.version: IMAGE})
    registry.mark(version, {ENGINE_IMAGE: "evil.example.net/miner@sha256:" + "6" * 64})
    said: list[str] = []

    assert (await planned.prepare(version, said.append)).image == IMAGE
    assert said == [
        f"{version.uri} is served from {IMAGE}, as planned; "
        f"its tag tidegate.engine.image says evil.example.net/miner@sha256:{'6' * 64} since"
    ]


GOOD = "registry.example/team/support-llm"


KEY = new_signing_key()
PRIVATE = ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def nobody(reference: ImageReference) -> object:
    raise AssertionError(f"{reference} was opened")


def image_at(root: Path, **engine: object) -> tuple[str, Open]:
    """An image in a layout that stands for its registry, and how it is opened."""
    found = small_engine(root, key=KEY, **engine)
    payload = signed_payload(found, ImageReference.parse(GOOD))

    class Signed(InLayout):
        def signatures(self, digest: str) -> tuple[tuple[bytes, bytes], ...]:
            return ((payload, KEY.sign(payload)),)

    @contextmanager
    def opened(_: ImageReference) -> Iterator[Images]:
        yield Signed(OciLayout(root), None)

    return f"{GOOD}@{found.digest}", opened


@pytest.mark.parametrize(
    ("repository", "allowed"),
    [
        (GOOD, True),
        ("registry.example/team/*", True),
        ("registry.example/*", True),
        ("registry.example/team", False),
        ("registry.example/team/support", False),
        ("evil.example/team/support-llm", False),
        ("registry.example/other/*", False),
    ],
)
def test_an_image_is_from_a_repository_that_is_allowed(version: ModelVersion, repository: str, allowed: bool) -> None:
    trusted = TrustedImages(open=nobody, repositories=(repository,))  # type: ignore[arg-type]
    image = f"{GOOD}@sha256:{'7' * 64}"
    if allowed:
        assert not trusted.prove(version, image)
        return
    with pytest.raises(UntrustedImage, match="is from none of the allowed repositories") as caught:
        trusted.prove(version, image)
    assert caught.value.exit_code is ExitCode.NOT_GENUINE


def test_a_signed_image_of_the_version_is_believed(version: ModelVersion, tmp_path: Path) -> None:
    image, opened = image_at(tmp_path / "layout", version="1", digest=version.digest)
    assert TrustedImages(open=opened, keys={"team.pub": KEY.public_pem}).prove(version, image) == "signed by team.pub"


def test_an_image_of_another_key_is_refused(version: ModelVersion, tmp_path: Path) -> None:
    image, opened = image_at(tmp_path / "layout", version="1", digest=version.digest)
    trusted = TrustedImages(open=opened, keys={"other.pub": new_signing_key().public_pem})
    with pytest.raises(UntrustedImage, match="signed by another key"):
        trusted.prove(version, image)


@pytest.mark.parametrize("other", [{"digest": "e" * 64, "version": "1"}, {"version": "6"}])
def test_a_signed_image_of_another_version_is_refused(
    version: ModelVersion, tmp_path: Path, other: dict[str, str]
) -> None:
    image, opened = image_at(tmp_path / "layout", **{"digest": version.digest, **other})
    with pytest.raises(UntrustedImage, match="is an engine of support-llm"):
        TrustedImages(open=opened, keys={"team.pub": KEY.public_pem}).prove(version, image)


async def test_every_region_asks_before_it_serves(
    registry: FakeRegistry, version: ModelVersion, tmp_path: Path
) -> None:
    registry.mark(version, {ENGINE_IMAGE: f"evil.example/miner@sha256:{'6' * 64}"})
    trusted = TrustedImages(open=nobody, repositories=(GOOD,))  # type: ignore[arg-type]
    engines = ImageEngines(registry=registry, state=StateFolder(tmp_path), name="support-llm", trusted=trusted)
    with pytest.raises(UntrustedImage, match=r"evil\.example/miner"):
        await engines.prepare(version, print)


def _args(**args: Any) -> dict[str, Any]:
    return {"vllm": {"version": "0.32.0", "args": args}}


def _record(settings: Any, pods: Any) -> EngineRecord:
    return EngineRecord(name="1", fingerprint="a" * 64, settings=settings, image=f"{GOOD}@sha256:{'6' * 64}", pods=pods)


PATCHES = [
    {
        "target": {"kind": "Rollout"},
        "json6902": [{"op": "add", "path": "/spec/template/spec/hostNetwork", "value": True}],
    }
]
RECORDS = [
    (
        _args(middleware=["acme.Steals"]),
        {},
        r"middleware 'acme\.Steals' is not under `spec\.plugins`",
    ),
    (_args(**{"tool-server": "10.1.2.3:80"}), {}, "tool-server"),
    (_args(), {"patches": PATCHES}, "patches of its pods need `spec.pods: true`"),
    ({"vllm": {"args": 3}}, {}, "recorded engine 1: "),
    ({"no such setting": True}, {}, "recorded engine 1: "),
]
"""Settings and pods, as anybody may write them who may write to MLflow, and what is said of them."""


@pytest.mark.parametrize(("record", "said"), [(_record(settings, pods), said) for settings, pods, said in RECORDS])
async def test_a_recorded_engine_may_say_no_more_than_a_spec(
    registry: FakeRegistry, version: ModelVersion, tmp_path: Path, record: EngineRecord, said: str
) -> None:
    engines = ImageEngines(registry=registry, state=StateFolder(tmp_path), name="support-llm")
    with pytest.raises(UntrustedImage, match=said):
        await engines.prepare(version, print, record)


async def test_what_the_operator_allows_to_specs_a_recorded_engine_may_say(
    registry: FakeRegistry, version: ModelVersion, tmp_path: Path
) -> None:
    pods = {"labels": {"team": "ml"}, "patches": PATCHES}
    settings = _args(middleware=["acme.Limits"])
    allowed = SpecTrust(pods=True, plugins={"middleware": ("acme.Limits",)})
    engines = ImageEngines(registry=registry, state=StateFolder(tmp_path), name="support-llm", allowed=allowed)
    assert (await engines.prepare(version, print, _record(settings, pods))).pods == pods


def test_keys_lie_next_to_the_trust_file(tmp_path: Path) -> None:
    (tmp_path / "team.pub").write_bytes(KEY.public_pem)
    assert keys_in(EngineTrust(keys=(Path("team.pub"),)), tmp_path) == {"team.pub": KEY.public_pem}
    (tmp_path / "team.key").write_bytes(PRIVATE)
    with pytest.raises(BadKey, match=r"team\.key: the public key cannot be read"):
        keys_in(EngineTrust(keys=(Path("team.key"),)), tmp_path)
    with pytest.raises(BadKey, match=r"engines\.keys of the trust file: .*gone\.pub"):
        keys_in(EngineTrust(keys=(Path("gone.pub"),)), tmp_path)
