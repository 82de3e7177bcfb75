"""Which distributions an image for steps gets."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import distributions, packages_distributions
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from engine_images.errors import BrokenImage
from engine_images.oci.packed import STEPS, Needs, packed

REQUIRES: dict[str, list[str]] = {
    "a": ["b>=1", "windows-only; sys_platform == 'win32'", "more; extra == 'more'", "heavy"],
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
import tidegate.cli.app, tidegate.cli.clusters, tidegate.cli.commands.approve, tidegate.cli.commands.stage_close
import tidegate.cli.commands.stage_open, tidegate.cli.commands.stage_step, tidegate.cli.commands.status
import pipelines.adapters.chat, pipelines.identity.proven, pipelines.image_engines, engine_images.adapters.tokenizer
import gates.adapters.embeddings, gates.adapters.judge, gates.adapters.language, gates.adapters.likelihood
import gates.adapters.prometheus, gates.adapters.topics, openai, scipy.optimize, scipy.stats, wordllama
from registry.adapters.mlflow_store import open_store
open_store("http://127.0.0.1:1")
"""


def test_what_is_needed_and_what_that_requires() -> None:
    assert packed(Needs(("a",), frozenset({"heavy"})), REQUIRES) == {"a", "b"}


def test_what_is_not_installed_is_named_with_who_needs_it() -> None:
    with pytest.raises(BrokenImage, match=r"^gone, which steps\.toml needs, is not in that folder"):
        packed(Needs(("gone",), frozenset()), REQUIRES)
    with pytest.raises(BrokenImage, match=r"^gone, which c needs"):
        packed(Needs(("c",), frozenset()), {"c": ["gone"]})


def test_every_line_says_what_the_project_depends_on() -> None:
    project = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    declared = {canonicalize_name(name) for name in re.findall(r'^  "([\w.-]+)[=<>]', project, re.MULTILINE)}
    assert set(Needs.read(STEPS).needs) <= declared


def test_steps_load_with_these_distributions_alone() -> None:
    requires: dict[str, list[str]] = {canonicalize_name(each.name): each.requires or [] for each in distributions()}
    chosen = packed(Needs.read(STEPS), requires)
    of = {module: {canonicalize_name(name) for name in names} for module, names in packages_distributions().items()}
    ours = {module for module, names in of.items() if "tidegate" in names}
    allowed = {module for module, names in of.items() if names & chosen} | ours
    assert not {"mlflow", "kubernetes", "matplotlib", "pandas", "locust", "gevent", "hera", "uv", "torch"} & allowed
    ended = subprocess.run(
        [sys.executable, "-c", STEP],
        input=f"{' '.join(allowed)}\n{' '.join(of)}",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
