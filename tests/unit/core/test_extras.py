"""What is not installed is told with the command that installs it."""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

import grimp
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tidegate.cli.endings import ended_by
from tidegate.core.adapters.extras import NotInstalled, distribution_of, require
from tidegate.core.errors import ExitCode

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OURS = ("tidegate", "pipelines", "rollouts", "gates", "registry", "engine_images", "slo")
ELSEWHERE = {"torch", "transformers", "vllm", "pytest"}
"""Imported where an engine or a test runs, in an environment of its own."""

BROUGHT_ALONG = {"certifi", "httpx2", "jsonpointer", "markupsafe", "pydantic_core", "urllib3"}
"""By httpx, jinja2, jsonpatch, pydantic and requests, which the core has, and by huggingface-hub."""


def test_a_command_that_needs_it_ends_in_one_line_as_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    error = ModuleNotFoundError("No module named 'locust'", name="locust")
    assert ended_by(error, debug=False) == ExitCode.USAGE
    told = "tidegate: this needs locust, which is not installed; run: pip install 'locust<3,>=2.47'\n"
    assert capsys.readouterr().err == told


def test_what_another_process_needs_is_looked_for_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    require("yaml", "rich")
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "uvicorn", raising=False)
    sys.path_importer_cache.clear()
    with pytest.raises(NotInstalled, match=r"needs uvicorn, .* run: pip install uvicorn"):
        require("uvicorn")


def test_every_package_that_is_imported_is_declared_under_the_name_that_would_be_told() -> None:
    graph = grimp.build_graph(*OURS, include_external_packages=True, exclude_type_checking_imports=True)
    external = {module for module in graph.modules if graph.is_module_squashed(module)}
    imported = {
        module
        for module in external - sys.stdlib_module_names - ELSEWHERE - BROUGHT_ALONG
        if graph.find_modules_that_directly_import(module)
    }
    requirements = chain(PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    declared = {canonicalize_name(Requirement(each).name) for each in requirements}
    assert {module for module in imported if distribution_of(module) not in declared} == set()
    installed = packages_distributions()
    wrong = {
        module: installed[module]
        for module in imported & installed.keys()
        if distribution_of(module) not in {canonicalize_name(name) for name in installed[module]}
    }
    assert wrong == {}
