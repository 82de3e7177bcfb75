"""Versions that training pipelines logged are delivered as they are, from a registry with thousands of models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from fakes.clusters.served import clusters, delivery_to, mark_images, write_golden_set
from fakes.kube.server import FakeServers
from fakes.services.embedded_mlflow import write_embedded_mlflow
from fakes.services.others_versions import ENGINE_PYTHON, Pipeline, as_transformers_logs, crowd
from fakes.terminal import Tidegate
from fakes.workflow.engine import engines

from registry.conventions import SUMS
from registry.mlflow_client import embedded_uri
from registry.versions import MlflowRegistry
from tidegate.testing import write_tiny_model

REGIONS = ("eu-west-1",)
MODELS = 3000


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A machine whose registry is that of a company."""
    state = tmp_path_factory.mktemp("company") / ".tidegate"
    write_embedded_mlflow(state)
    crowd(state / "mlflow.db", MODELS)
    return state


@pytest.fixture
def pipeline(state: Path, tmp_path: Path) -> Pipeline:
    return Pipeline(embedded_uri(state), tmp_path / "artifacts")


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """What was trained, twice."""
    return write_tiny_model(tmp_path / "a", seed=1), write_tiny_model(tmp_path / "b", seed=2)


@pytest.fixture
def servers(
    tmp_path: Path, name: str, folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeServers]:
    """An empty region with its controllers, and the delivery to it."""
    write_golden_set(tmp_path)
    with engines(folders[0]) as served:
        said = delivery_to([[each] for each in REGIONS], name=name, engine=served.url)
        (tmp_path / "delivery.yaml").write_text(yaml.safe_dump(said))
        with clusters(said, tmp_path) as there:
            monkeypatch.setenv("KUBECONFIG", str(there.servers.kubeconfig))
            yield there.servers


def kept(folder: Path) -> list[tuple[str, int]]:
    """Every file of a store but digests, with the moment at which it was written."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != SUMS)
    return sorted((str(path), path.stat().st_mtime_ns) for path in files)


@pytest.mark.long
@pytest.mark.skipif(not ENGINE_PYTHON.exists(), reason="no engine environment; `tidegate setup` makes it")
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("servers")
def test_what_others_logged_is_adopted_and_delivered_without_a_second_upload(
    tidegate: Tidegate, pipeline: Pipeline, name: str, folders: tuple[Path, Path]
) -> None:
    pipeline.log_with_transformers(name, folders[0])
    pipeline.log_folder(name, folders[1], place="hf")
    for alias, number in (("champion", "1"), ("challenger", "2")):
        pipeline.client.set_registered_model_alias(name, alias, number)
    mark_images(MlflowRegistry(pipeline.uri), name)
    before = kept(pipeline.artifacts)

    planned = tidegate("plan", "delivery.yaml", "--output", "json")
    assert planned.code == 0, planned.err
    weights = sum(path.stat().st_size for path in folders[1].iterdir())
    adopts = planned.json["adopts"]
    assert [each["model"] for each in adopts] == [f"models:/{name}/1", f"models:/{name}/2"]
    assert adopts[1]["size_bytes"] == weights
    assert not any(tag.startswith("tidegate.digest") for tag in pipeline.client.get_model_version(name, "2").tags)

    delivered = tidegate("deliver", "delivery.yaml", "--output", "json")
    assert (delivered.code, delivered.json["ending"]) == (0, "delivered"), delivered.err
    assert f"models:/{name}/1: its 6 files are read once for their digests" in delivered.err
    assert kept(pipeline.artifacts) == before
    assert len(pipeline.client.search_model_versions(f"name = '{name}'")) == 2
    assert pipeline.client.get_model_version_by_alias(name, "champion").version == 2
    adopted = json.loads(pipeline.client.get_model_version(name, "1").tags["tidegate.adopted"])
    assert adopted["folders"] == ["model", "components/tokenizer"]
    assert "adopts" not in tidegate("plan", "delivery.yaml", "--output", "json").err


def test_a_version_is_adopted_beforehand_and_once(
    tidegate: Tidegate, pipeline: Pipeline, name: str, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    logged = as_transformers_logs(folders[0], tmp_path / "logged")
    (logged / "model" / "training_args.bin").write_bytes(b"pickled")
    pipeline.log_folder(name, logged)

    listed = tidegate("model", "list", name)
    assert listed.out == f"models:/{name}/1: no digests yet; run: tidegate model add {name} 1\n"
    first = tidegate("model", "add", name, "1", "--output", "json")
    again = tidegate("model", "add", name, "1", "--output", "json")

    assert (first.code, again.code, again.err) == (0, 0, ""), first.err
    assert set(first.json["files"]) == {path.name for path in folders[0].iterdir()}
    assert first.json["left_out"] == ["model/training_args.bin"]
    assert [said.json["adopted_now"] for said in (first, again)] == [True, False]
    assert first.json["digest"] == again.json["digest"]
    assert tidegate("model", "list", name).out.endswith(f", digest {first.json['digest'][:12]}\n")


def test_a_wrong_name_is_answered_with_a_few_near_ones(tidegate: Tidegate) -> None:
    said = tidegate("model", "list", "team-07")
    assert said.code == 2
    near = said.err.split("which has ")[1]
    assert near.startswith("team-00-model-00000, team-00-model-00040, ")
    assert near.count("team-") == 10
