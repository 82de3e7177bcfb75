"""What somebody with MLflow's own client swaps under an open delivery is found before a step does anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.terminal import Tidegate

from registry.adapters.mlflow_store import embedded_uri


@pytest.fixture
def opened(tidegate: Tidegate, registered: Path) -> str:
    said = tidegate("stage", "open", "-f", "delivery.yaml", "--key", "one")
    assert (said.code, said.err) == (0, "")
    return said.out.strip()


def log(state: Path, delivery: str, path: Path, folder: str) -> None:
    """What anybody may do who may edit a run."""
    from mlflow import MlflowClient

    MlflowClient(embedded_uri(state)).log_artifact(delivery, str(path), folder)


def test_a_spec_that_was_swapped_is_not_run(
    tidegate: Tidegate, opened: str, state: Path, registered: Path, tmp_path: Path
) -> None:
    lax = tmp_path / "lax" / "delivery.yaml"
    lax.parent.mkdir()
    lax.write_text(registered.read_text().replace("max_increase: 10pp", "max_increase: 99pp"))
    assert lax.read_text() != registered.read_text()
    log(state, opened, lax, "spec")
    for command in ("build", "close"):
        said = tidegate("stage", command, "--delivery", opened)
        assert (said.code, said.out) == (5, "")
        assert f"delivery {opened}: its kept files are not those it was opened with: changed: delivery.yaml" in said.err


def test_a_file_that_was_put_next_to_the_spec_is_found(
    tidegate: Tidegate, opened: str, state: Path, tmp_path: Path
) -> None:
    planted = tmp_path / "trust.yaml"
    planted.write_text("kind: Trust")
    log(state, opened, planted, "spec")
    said = tidegate("stage", "build", "--delivery", opened)
    assert (said.code, "spec/trust.yaml is not among them" in said.err) == (5, True)
