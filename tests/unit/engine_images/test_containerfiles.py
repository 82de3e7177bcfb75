"""The two Containerfiles: nothing in them that is not pinned, and the places that the code expects."""

from __future__ import annotations

import re
from pathlib import Path

from engine_images.adapters.environment import DEFAULT_HOME, UNCOMPILABLE
from engine_images.adapters.found_environment import PYTHON_VARIABLE
from engine_images.choices import EnginePlatform
from engine_images.environment.recipe import CPU_TORCH, RECIPES, lock_of

STEPS = Path(__file__).parents[3] / "Containerfile"
ENGINES = (RECIPES / "Containerfile").read_text(encoding="utf-8")


def test_the_image_of_steps_takes_nothing_that_is_not_pinned() -> None:
    """No base by a tag, no package without its hash; and the lock has what our own tests ran with."""
    text = STEPS.read_text()
    assert "ARG BASE\nFROM ${BASE}\n" in text
    assert all("--require-hashes" in line or "--no-deps" in line for line in text.splitlines() if "pip install" in line)
    locks = ("requirements.lock", "runtime-stores.lock", "runtime.lock")
    tested, stores, packed = (_pins(STEPS.with_name(name)) for name in locks)
    assert packed.items() <= stores.items() <= tested.items()
    assert packed
    assert {"boto3", "google-cloud-storage", "azure-storage-blob"} <= stores.keys() - packed.keys()


def _pins(lock: Path) -> dict[str, tuple[str, frozenset[str]]]:
    """Version and hashes of each package."""
    found = re.findall(r"^([\w.-]+)==(\S+)[^\n]*\\\n((?:    --hash=\S+(?: \\)?\n)+)", lock.read_text(), re.MULTILINE)
    return {name: (version, frozenset(re.findall(r"sha256:\w+", hashes))) for name, version, hashes in found}


def test_the_base_of_engines_takes_nothing_that_is_not_pinned() -> None:
    """No base by a tag, and no package without its hash but the torch that a person names."""
    assert "ARG BASE\nFROM ${BASE}\n" in ENGINES
    installs = [part for part in re.split("&&|;", ENGINES) if "pip install" in part]
    unpinned = [part for part in installs if "--require-hashes -r /tmp/" not in part]
    assert len(installs) == 3
    assert all("--no-deps" in part for part in installs)
    assert [part.rstrip().endswith("--no-deps ${TORCH}") for part in unpinned] == [True]


def test_the_containerfile_makes_what_a_machine_is_set_up_with() -> None:
    said = dict(re.findall(r"^(?:ARG|ENV) (\w+)=(.+)$", ENGINES, re.MULTILINE))
    assert RECIPES / said["LOCK"] == lock_of(EnginePlatform.CUDA)
    assert said[PYTHON_VARIABLE] == f"{DEFAULT_HOME}/bin/python"
    assert f"python3 -m venv {DEFAULT_HOME} " in ENGINES
    assert f"-x '{UNCOMPILABLE}'" in ENGINES
    assert f"LOCK={lock_of(EnginePlatform.CPU).relative_to(RECIPES)} " in ENGINES
    assert f'TORCH="{CPU_TORCH} --index-url ' in ENGINES
