"""What a spec or an option names and is not there is wrong usage (2), with its place, before anybody is asked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from pipelines.spec.policy import prompts_in
from tidegate.cli import main
from tidegate.core.spec import SpecError

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def clusters(tmp_path: Path) -> Path:
    """A spec of two clusters, with the files that it names."""
    shutil.copytree(EXAMPLES / "kubernetes", tmp_path, dirs_exist_ok=True)
    return tmp_path / "delivery.yaml"


def test_a_file_that_is_too_large_is_told_by_its_size_and_not_read(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    with prompts.open("wb") as file:
        file.truncate(3 << 30)
    with pytest.raises(SpecError, match="found 3,072 MiB; expected one prompt a line, at most"):
        prompts_in(prompts)


@pytest.mark.long
def test_a_region_whose_context_is_there_is_still_looked_at(
    clusters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", "")
    config, named = tmp_path / "config", {"name": "prod-eu-west-1", "context": {"cluster": "c"}}
    server = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    config.write_text(yaml.safe_dump({"contexts": [named], "clusters": [server], "users": []}))
    assert main(["status", str(clusters), "--kubeconfig", str(config), "--state", str(tmp_path / "state")]) == 4
    out = capsys.readouterr().out
    assert "eu-west-1: cannot be seen: http://127.0.0.1:1 cannot be reached" in out
    assert "us-east-1: cannot be seen: no context prod-us-east-1" in out
