"""`tidegate rollout render`: what it prints, and what it refuses in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.fleet import IMAGE

from tidegate.cli import main

ROOT = Path(__file__).parents[3]
EXAMPLE = str(ROOT / "examples/kubernetes/delivery.yaml")


def test_what_an_administrator_applies_is_the_same_for_every_engine(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = ["rollout", "render", EXAMPLE, "--region", "eu-west-1", "--part", "setup"]
    assert main(wanted) == 0
    printed = capsys.readouterr().out
    assert main([*wanted, "--version", "7", "--image", IMAGE]) == 0
    assert capsys.readouterr().out == printed
