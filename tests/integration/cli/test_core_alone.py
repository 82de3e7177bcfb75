"""What pip installs, in environments of its own: the core without any extra, and MLflow's library without MLflow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fakes.services.sockets import free_address, running

from tidegate.testing.models import write_tiny_model

ROOT = Path(__file__).parents[3]


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
    register = [tidegate, "model", "add", "support-llm", str(model), "--alias", "champion"]
    ended = subprocess.run(register, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.partition(" (champion)")[0]) == (0, "models:/support-llm/1"), ended.stderr
    assert not list((tmp_path / "mlflow").glob("lib/*/site-packages/mlflow-*.dist-info"))


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of the image of steps, as the Containerfile installs them."""
    folder = tmp_path_factory.mktemp("image") / "installed"
    into = (Path(sys.executable).with_name("uv"), "pip", "install", "--quiet", "--python", sys.executable)
    for what in (("--require-hashes", "-r", ROOT / "runtime.lock"), ("--no-deps", ROOT)):
        subprocess.run([*into, "--target", folder, *what], check=True)
    return folder


@pytest.mark.slow(reason="an environment of 320 MB is installed")
@pytest.mark.parametrize(
    ("command", "spec", "options"),
    [
        (["serve"], "tidegate/cli/templates/delivery.yaml", ["--tracking-uri", "http://127.0.0.1:9"]),
        (["gate", "serve"], "examples/gates/argo-rollouts/gates.yaml", ["--prometheus", "http://127.0.0.1:9"]),
    ],
)
def test_both_servers_answer_in_the_image_of_steps(
    packed: Path, command: list[str], spec: str, options: list[str], tmp_path: Path
) -> None:
    address = free_address()
    # Without `site`, which would bring the packages of this environment.
    start = [sys.executable, "-S", "-P", "-c", "from tidegate.cli import main; raise SystemExit(main())", *command]
    options = [*options, "--address", address, "--state", str(tmp_path / "state")]
    settings = {"PYTHONPATH": str(packed), "TIDEGATE_WEBHOOK_SECRET": "0123456789abcdef"}
    with running(
        [*start, str(ROOT / spec), *options], ready=f"http://{address}/healthz", log=tmp_path / "log", settings=settings
    ):
        pass
