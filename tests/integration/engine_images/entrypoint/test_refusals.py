"""What is not as it was built does not start: one line says what, and the exit code says of which kind."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.engines.engine_image import Process1, new_signing_key, write_engine_root

from engine_images.signature import SigningKey

Start = Callable[..., Process1]
Damage = Callable[[Path], object]


def sign(root: Path, key: SigningKey) -> None:
    (root / "manifest.json.sig").write_bytes(key.sign((root / "manifest.json").read_bytes()))


def reason_of(engine: Process1) -> str:
    ended = engine.event("ended")
    assert ended["level"] == "error"
    assert "\n" not in ended["reason"]
    # No traceback above it.
    assert "Traceback" not in engine.output.read_text()
    return str(ended["reason"])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "code", "words"),
    [
        (lambda root: flip(root / "model/model.safetensors"), 3, "model.safetensors was changed: its SHA-256 is"),
        (lambda root: (root / "model/config.json").unlink(), 3, "config.json is missing"),
        (lambda root: (root / "model/chat_template.jinja").touch(), 3, "chat_template.jinja is not in the manifest"),
        (lambda root: flip(root / "cache/aot/model"), 3, "cache/aot/model was changed"),
        (lambda root: shutil.rmtree(root / "cache"), 3, "cache/aot/model is missing"),
        (lambda root: (root / "manifest.json").unlink(), 3, "manifest.json cannot be read: No such file"),
        (lambda root: (root / "manifest.json").write_text("{}"), 2, "the manifest cannot be read: KeyError: 'format'"),
        (lambda root: (root / "manifest.json").write_text('{"format": 2}'), 2, "has format 2; this entrypoint reads 1"),
        (lambda root: shutil.rmtree(root / "model"), 2, "neither the manifest nor --weights says"),
    ],
)
def test_an_engine_that_is_not_as_it_was_built(
    tmp_path: Path, start: Start, damage: Damage, code: int, words: str
) -> None:
    root = write_engine_root(tmp_path, cache={"aot/model": b"compiled"})
    damage(root)
    engine = start(root)
    assert engine.wait() == code
    assert words in reason_of(engine)


def test_a_manifest_signed_by_one_of_the_keys_is_served(tmp_path: Path, start: Start) -> None:
    root, key = write_engine_root(tmp_path), new_signing_key()
    (tmp_path / "engine.pub").write_bytes(new_signing_key().public_pem + b"\n" + key.public_pem)
    sign(root, key)
    engine = start(root, "--public-key", str(tmp_path / "engine.pub")).until_ready()
    assert engine.get("/tidegate/status").json()["signature"] == "verified"


@pytest.mark.parametrize(
    ("damage", "code", "words"),
    [
        (lambda root: sign(root, new_signing_key()), 3, "manifest.json.sig is not of this manifest by the key in"),
        (lambda root: (root / "manifest.json.sig").unlink(), 3, "cannot be read (No such file or directory), and a"),
        (lambda root: (root / "manifest.json.sig").write_text("not base64"), 3, "is not of this manifest by the key"),
        (lambda root: flip(root / "manifest.json"), 3, "is not of this manifest by the key in"),
        (lambda root: (root.parent / "engine.pub").write_text("x"), 2, "engine.pub is no public key in PEM"),
    ],
)
def test_a_manifest_that_the_key_did_not_sign(
    tmp_path: Path, start: Start, damage: Damage, code: int, words: str
) -> None:
    root, key = write_engine_root(tmp_path), new_signing_key()
    (tmp_path / "engine.pub").write_bytes(key.public_pem)
    sign(root, key)
    damage(root)
    engine = start(root, "--public-key", str(tmp_path / "engine.pub"))
    assert engine.wait() == code
    assert words in reason_of(engine)


def test_a_port_that_is_taken_is_told_before_anything_is_loaded(tmp_path: Path, start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        engine = start(write_engine_root(tmp_path), port=port)
        assert engine.wait() == 4
    assert reason_of(engine) == f"port {port} of 127.0.0.1 cannot be taken: Address already in use"


def test_two_engines_do_not_share_a_folder(tmp_path: Path, start: Start) -> None:
    root = write_engine_root(tmp_path)
    first = start(root).until_ready()
    second = start(root, run=first.run)
    assert second.wait() == 2
    assert "another engine runs in" in reason_of(second)
    assert first.get("/tidegate/ready").status_code == 200


KEY = {"torch": "2.13.0+cpu", "cpu": "x86_64 avx512f", "argument:--max-model-len": "1024", "env:VLLM_PLUGINS": "a"}


def test_another_machine_is_told_factor_by_factor(tmp_path: Path, start: Start) -> None:
    engine = start(write_engine_root(tmp_path, key=KEY)).until_ready()
    found = engine.get("/tidegate/status").json()["compile_key"]["differences"]
    assert "torch: built with 2.13.0+cpu, here nothing" in found
    assert found == [event["factor"] for event in engine.events() if event["event"] == "the compile key differs"]


def test_a_server_that_does_not_start(tmp_path: Path, start: Start) -> None:
    engine = start(write_engine_root(tmp_path), vllm=["--fail=no memory"])
    assert engine.wait() == 6
    assert "vLLM ended with code 1 while it started" in reason_of(engine)
    assert "no memory" in engine.output.read_text()


def test_a_server_that_is_not_ready_in_time(tmp_path: Path, start: Start) -> None:
    engine = start(write_engine_root(tmp_path), "--start-deadline", "1", vllm=["--load-seconds=60"])
    assert engine.wait() == 6
    assert reason_of(engine) == "vLLM was not ready after 1 s"


def test_a_server_that_does_not_answer_its_warm_up(tmp_path: Path, start: Start) -> None:
    engine = start(write_engine_root(tmp_path), vllm=["--broken"])
    assert engine.wait() == 6
    assert "does not answer its warm-up: status 500" in reason_of(engine)


def test_a_server_that_dies_while_it_serves(tmp_path: Path, start: Start) -> None:
    engine = start(write_engine_root(tmp_path)).until_ready()
    engine.get("/die")
    assert engine.wait() == 7
    assert "while it served" in reason_of(engine)
