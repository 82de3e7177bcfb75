"""An image is served when it is from where it may be, signed by the one who may build, and the version asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
from pipelines.errors import UntrustedImage
from pipelines.spec.trust import EngineTrust, SpecTrust
from pipelines.state import StateFolder
from registry.conventions import ENGINE_IMAGE
from registry.model import EngineRecord, ModelVersion
from tidegate.core.errors import ExitCode
from tidegate.testing import write_tiny_model

GOOD = "registry.example/team/support-llm"


KEY = new_signing_key()
PRIVATE = ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.fixture
def registry() -> FakeRegistry:
    return FakeRegistry()


@pytest.fixture
def version(registry: FakeRegistry, tmp_path: Path) -> ModelVersion:
    return registry.register("support-llm", write_tiny_model(tmp_path / "model"))


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
