"""An engine starts when one of the keys in its file signed its manifest."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.engines.engine_image import new_signing_key

from engine_images.entrypoint.journal import BadSettings, NotAsBuilt
from engine_images.entrypoint.manifest import prove_signature
from engine_images.signature import SigningKey

OLD, NEXT, OTHER = new_signing_key(), new_signing_key(), new_signing_key()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    (tmp_path / "engines.pem").write_bytes(OLD.public_pem + b"\n" + NEXT.public_pem)
    return tmp_path / "engines.pem"


@pytest.mark.parametrize("key", [OLD, NEXT])
def test_either_of_two_keys_is_believed(keys: Path, tmp_path: Path, key: SigningKey) -> None:
    (tmp_path / "sig").write_bytes(key.sign(b"manifest"))
    prove_signature(keys, b"manifest", tmp_path / "sig")


@pytest.mark.parametrize("content", [b"manifest", b"changed"])
def test_a_third_key_is_not(keys: Path, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "sig").write_bytes(OTHER.sign(b"manifest"))
    with pytest.raises(NotAsBuilt, match="is not of this manifest by the key"):
        prove_signature(keys, content, tmp_path / "sig")


def test_a_file_without_a_key_is_a_setting_that_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "engines.pem").write_text("")
    (tmp_path / "sig").write_bytes(OLD.sign(b"manifest"))
    with pytest.raises(BadSettings, match="no public key in PEM"):
        prove_signature(tmp_path / "engines.pem", b"manifest", tmp_path / "sig")
