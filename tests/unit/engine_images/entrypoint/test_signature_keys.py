"""An engine starts when one of the keys in its file signed its manifest."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.engines.engine_image import new_signing_key

from engine_images.entrypoint.manifest import prove_signature
from engine_images.signature import SigningKey

OLD, NEXT = new_signing_key(), new_signing_key()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    (tmp_path / "engines.pem").write_bytes(OLD.public_pem + b"\n" + NEXT.public_pem)
    return tmp_path / "engines.pem"


@pytest.mark.parametrize("key", [OLD, NEXT])
def test_either_of_two_keys_is_believed(keys: Path, tmp_path: Path, key: SigningKey) -> None:
    (tmp_path / "sig").write_bytes(key.sign(b"manifest"))
    prove_signature(keys, b"manifest", tmp_path / "sig")
