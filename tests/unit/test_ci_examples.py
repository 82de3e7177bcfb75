"""What we hand out for CI calls commands and options that exist, and collects the files that they write."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tidegate.cli import command_tree
from tidegate.cli.ci import JUNIT, SUMMARY

FOLDER = Path(__file__).parents[2] / "examples/ci"
PIPELINES = sorted(path for path in FOLDER.rglob("*") if path.suffix in (".yaml", ".yml") or path.name == "Jenkinsfile")
CALL = re.compile(r"^\s*(?:- |- run: |run: |.*sh '|.*; )?tidegate ([a-z][^>|'\n]*)", re.MULTILINE)


def calls(path: Path) -> list[list[str]]:
    """Every call of tidegate, as the shell hands it over when its variables are set."""
    text = re.sub(r"\$\{\w+:\+(.*?)\}", r"\1", path.read_text(encoding="utf-8"))
    return [shlex.split(call) for call in CALL.findall(text)]


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_every_call_is_one_that_tidegate_takes(path: Path) -> None:
    root: Any = command_tree()
    assert calls(path)
    for name, *arguments in calls(path):
        context = root.commands[name].make_context(name, arguments)
        assert context.params["spec"] == Path("delivery.yaml")


def test_actions_of_others_are_named_by_a_commit_that_nobody_can_move() -> None:
    used = [use for path in PIPELINES for use in re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8"))]
    assert used
    assert [use for use in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", use)] == []


@pytest.mark.parametrize(
    ("path", "files"),
    [
        ("github/deliver.yaml", {JUNIT}),
        ("gitlab/.gitlab-ci.yml", {JUNIT, SUMMARY}),
        ("jenkins/Jenkinsfile", {JUNIT, SUMMARY}),
    ],
)
def test_what_is_collected_is_what_is_written(path: str, files: set[Path]) -> None:
    text = (FOLDER / path).read_text(encoding="utf-8")
    assert {file for file in (JUNIT, SUMMARY) if str(file) in text} == files
