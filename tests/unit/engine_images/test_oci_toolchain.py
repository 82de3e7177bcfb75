"""tidegate as an image: which distributions go in, and into which layers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import distributions, packages_distributions
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from engine_images.errors import BrokenImage
from engine_images.oci.model import Base, Platform
from engine_images.oci.toolchain import STEPS, PackingList, packed_distributions, toolchain_runtime
from tidegate.core.adapters.extras import extras

pytestmark = pytest.mark.long

REQUIRES: dict[str, list[str]] = {
    "tidegate": ["a", "asks; extra == 'deliver'", "users; extra == 'load'", "heavy"],
    "a": ["b>=1", "windows-only; sys_platform == 'win32'", "more; extra == 'deliver'"],
    "asks": [],
    "b": ["A"],
    "heavy": ["heavier"],
    "heavier": [],
    "other": [],
}
STEP = """
import sys
allowed, installed = (set(line.split()) for line in sys.stdin.read().splitlines())


class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in installed - allowed:
            raise ModuleNotFoundError(f"{name} is not in the image", name=name)


sys.meta_path.insert(0, Refuse())
import tidegate.cli, pipelines.adapters.clusters, pipelines.authority.answering, tidegate.steps
import tidegate.standing, engine_images.adapters.oci_read
import pipelines.adapters.chat, pipelines.adapters.identities, pipelines.adapters.image_engines
import engine_images.adapters.model_version
import gates.adapters.text_models, gates.adapters.judge, gates.adapters.text_models, gates.adapters.likelihood
import gates.adapters.prometheus, pipelines.adapters.load.prompts, openai, scipy.optimize, scipy.stats, wordllama
from registry.mlflow import MlflowStore
tidegate.cli.command_line()
MlflowStore("http://127.0.0.1:1")
"""


def test_what_is_needed_and_what_that_requires() -> None:
    packing = PackingList(("deliver",), frozenset({"heavy"}))
    assert packed_distributions(packing, REQUIRES) == {"tidegate", "a", "asks", "b"}


def test_what_is_not_installed_is_named_with_who_needs_it() -> None:
    steps = PackingList(("deliver",), frozenset())
    with pytest.raises(BrokenImage, match=r"^tidegate, which steps\.toml needs, is not in that folder"):
        packed_distributions(steps, {})
    with pytest.raises(
        BrokenImage, match=r"^gone, which tidegate needs, .*; in a clone: `uv pip install .*\[deliver,server\]"
    ):
        packed_distributions(steps, {"tidegate": ["gone; extra == 'deliver'"]})


def test_the_list_names_what_there_is() -> None:
    """What is left out is required by something, and the extras are ours."""
    packing, required = PackingList.read(STEPS), _required()
    assert set(packing.extras) <= extras().keys()
    chosen = packed_distributions(replace(packing, without=frozenset()), required)
    assert packing.without <= chosen


def test_steps_load_with_these_distributions_alone() -> None:
    chosen = packed_distributions(PackingList.read(STEPS), _required())
    of = {module: {canonicalize_name(name) for name in names} for module, names in packages_distributions().items()}
    ours = {module for module, names in of.items() if "tidegate" in names}
    allowed = {module for module, names in of.items() if names & chosen} | ours
    assert not {"sqlalchemy", "kubernetes", "matplotlib", "pandas", "locust", "gevent", "hera", "uv", "torch"} & allowed
    ended = subprocess.run(
        [sys.executable, "-c", STEP],
        input=f"{' '.join(allowed)}\n{' '.join(of)}",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def _required() -> dict[str, list[str]]:
    return {canonicalize_name(each.name): each.requires or [] for each in distributions()}


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
    locks = ("requirements.lock", "runtime-stores.lock", "runtime.lock")
    tested, stores, packed = (_pins(CONTAINERFILE.with_name(name)) for name in locks)
    assert packed.items() <= stores.items() <= tested.items()
    assert packed
    assert {"boto3", "google-cloud-storage", "azure-storage-blob"} <= stores.keys() - packed.keys()


def _pins(lock: Path) -> dict[str, tuple[str, frozenset[str]]]:
    """Version and hashes of each package."""
    found = re.findall(r"^([\w.-]+)==(\S+)[^\n]*\\\n((?:    --hash=\S+(?: \\)?\n)+)", lock.read_text(), re.MULTILINE)
    return {name: (version, frozenset(re.findall(r"sha256:\w+", hashes))) for name, version, hashes in found}


def test_a_base_that_says_no_path_gets_the_usual_one() -> None:
    runtime = toolchain_runtime(Base(platform=Platform(architecture="amd64")))
    assert runtime.environment["PATH"].startswith("/opt/tidegate/bin:/usr/local/bin:")
