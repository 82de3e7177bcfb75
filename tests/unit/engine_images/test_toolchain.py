"""The toolchain's image runs in the same way whoever builds it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from engine_images.oci.base import Base
from engine_images.oci.model import Platform
from engine_images.oci.toolchain import toolchain_runtime

CONTAINERFILE = Path(__file__).parents[3] / "Containerfile"
BASE = Base(platform=Platform(architecture="amd64"), config={"config": {"Env": ["PATH=$PATH", "LANG=C.UTF-8"]}})


def test_the_containerfile_says_what_our_own_build_says() -> None:
    lines = [line.partition(" ")[::2] for line in CONTAINERFILE.read_text().splitlines()]
    runtime = toolchain_runtime(BASE)
    assert dict(said.split("=", 1) for word, said in lines if word == "ENV") == runtime.environment
    assert [said for word, said in lines if word == "USER"] == [runtime.user]
    assert [tuple(json.loads(said)) for word, said in lines if word == "ENTRYPOINT"] == [runtime.entrypoint]


def test_the_containerfile_takes_nothing_that_is_not_pinned() -> None:
    """No base by a tag, no package without its hash; and the lock has what our own tests ran with."""
    text = CONTAINERFILE.read_text()
    assert "ARG BASE\nFROM ${BASE}\n" in text
    assert all("--require-hashes" in line or "--no-deps" in line for line in text.splitlines() if "pip install" in line)
    tested, packed = (_pins(CONTAINERFILE.with_name(name)) for name in ("requirements.lock", "runtime.lock"))
    assert packed.items() <= tested.items()
    assert packed


def _pins(lock: Path) -> dict[str, tuple[str, frozenset[str]]]:
    """Version and hashes of each package."""
    found = re.findall(r"^([\w.-]+)==(\S+)[^\n]*\\\n((?:    --hash=\S+(?: \\)?\n)+)", lock.read_text(), re.MULTILINE)
    return {name: (version, frozenset(re.findall(r"sha256:\w+", hashes))) for name, version, hashes in found}


def test_a_base_that_says_no_path_gets_the_usual_one() -> None:
    runtime = toolchain_runtime(Base(platform=Platform(architecture="amd64")))
    assert runtime.environment["PATH"].startswith("/opt/tidegate/bin:/usr/local/bin:")
