"""`tidegate rollout render`: what it prints, and what it refuses in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from fakes.fleet import IMAGE

from tidegate.cli import main

ROOT = Path(__file__).parents[3]
EXAMPLE = str(ROOT / "examples/kubernetes/delivery.yaml")
ENGINE = ("--version", "7", "--image", IMAGE)


def render(*arguments: str, spec: str = EXAMPLE) -> int:
    return main(["rollout", "render", spec, *ENGINE, *arguments])


def test_yaml_and_json_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert render("--region", "eu-west-1") == 0
    text = capsys.readouterr().out
    assert render("--region", "eu-west-1", "--output", "json") == 0
    assert list(yaml.safe_load_all(text)) == json.loads(capsys.readouterr().out)


def test_what_an_administrator_applies_is_the_same_for_every_engine(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = ("--region", "eu-west-1", "--part", "setup")
    assert main(["rollout", "render", EXAMPLE, *wanted]) == 0
    printed = capsys.readouterr().out
    assert render(*wanted) == 0
    assert capsys.readouterr().out == printed


def test_the_engine_is_the_one_that_was_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert render("--region", "eu-west-1", "--part", "serving", "--digest", "abc", "--output", "json") == 0
    template = json.loads(capsys.readouterr().out)[-1]["spec"]["template"]
    assert template["spec"]["containers"][0]["image"] == IMAGE
    assert template["metadata"]["labels"]["tidegate.dev/version"] == "7"
    assert template["metadata"]["annotations"] == {"tidegate.dev/digest": "abc"}
