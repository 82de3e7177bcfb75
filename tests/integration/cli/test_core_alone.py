"""What pip installs, in environments of its own: the core without any extra, and MLflow's library without MLflow."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tidegate.testing.models import write_tiny_model


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `build` has left what it proved: the core runs alone, and every extra resolves."""
    # Here, since most runs leave these tests out.
    from release import ROOT, build

    folder = tmp_path_factory.mktemp("release") / "dist"
    build(folder, ROOT)
    return folder


@pytest.mark.long
def test_what_is_published_is_built_and_the_core_runs_alone(dist: Path) -> None:
    assert sorted(path.suffix for path in dist.iterdir() if path.name[0] != ".") == [".gz", ".whl"]


@pytest.mark.long
def test_models_are_registered_in_a_store_of_this_machine_without_all_of_mlflow(dist: Path, tmp_path: Path) -> None:
    from release import environment_with

    (wheel,) = dist.glob("*.whl")
    tidegate = environment_with(tmp_path / "mlflow", f"{wheel}[mlflow]") / "bin/tidegate"
    model = write_tiny_model(tmp_path)
    register = [tidegate, "model", "register", "support-llm", str(model), "--alias", "champion"]
    ended = subprocess.run(register, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.partition(" (champion)")[0]) == (0, "models:/support-llm/1"), ended.stderr
    assert not list((tmp_path / "mlflow").glob("lib/*/site-packages/mlflow-*.dist-info"))
