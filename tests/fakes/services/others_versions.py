"""Model versions as training pipelines log them, without tidegate, and the registry of a whole company around them."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sysconfig
from pathlib import Path

from registry.mlflow_client import open_client

ENGINE_PYTHON = Path("/opt/tidegate/engine/bin/python")
LOG = """
import sys
sys.path.append(sys.argv[1])  # last, so that transformers and numpy are the engine's own
import mlflow, mlflow.transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline
mlflow.set_tracking_uri(sys.argv[2])
made = pipeline(
    "text-generation", model=AutoModelForCausalLM.from_pretrained(sys.argv[4]),
    tokenizer=AutoTokenizer.from_pretrained(sys.argv[4]),
)
mlflow.set_experiment(experiment_id=sys.argv[5])
with mlflow.start_run():
    mlflow.transformers.log_model(made, name="model", registered_model_name=sys.argv[3], pip_requirements=["torch"])
"""
MLMODEL = """flavors:
  transformers:
    code: null
    components: [tokenizer]
    instance_type: TextGenerationPipeline
    model_binary: model
    pipeline_model_type: LlamaForCausalLM
    task: text-generation
    tokenizer_type: TokenizersBackend
    transformers_version: 5.19.0
mlflow_version: 3.17.2
"""
"""Of what `LOG` logs, as MLflow 3.17.2 wrote it; what no reader of ours looks at is left out."""
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


class Pipeline:
    """Anyone who trains models and logs them to a store, whose files are in `artifacts`."""

    def __init__(self, uri: str, artifacts: Path) -> None:
        self.uri, self.artifacts = uri, artifacts
        self.client = open_client(uri)

    def log_with_transformers(self, name: str, folder: Path) -> None:
        """By `mlflow.transformers.log_model` itself, in the engine environment, which has transformers."""
        packages = sysconfig.get_paths()["purelib"]
        command = [str(ENGINE_PYTHON), "-c", LOG, packages, self.uri, name, str(folder), self._experiment(name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def log_folder(self, name: str, folder: Path, *, place: str = "") -> str:
        """Plain artifacts of a run, with the folder at `place` among them; returns the number of the version."""
        run = self.client.create_run(self._experiment(name)).info
        self.client.log_artifacts(run.run_id, str(folder), f"export/{place}".strip("/"))
        return self.version_of(name, f"{run.artifact_uri}/export")

    def version_of(self, name: str, source: str) -> str:
        """A version of what lies there already."""
        if not self.client.search_registered_models(f"name = '{name}'"):
            self.client.create_registered_model(name)
        return str(self.client.create_model_version(name, source).version)

    def _experiment(self, name: str) -> str:
        title = f"training of {name}"
        found = self.client.get_experiment_by_name(title)
        return found.experiment_id if found else self.client.create_experiment(title, (self.artifacts / name).as_uri())


def as_transformers_logs(folder: Path, target: Path) -> Path:
    """The files of a Hugging Face folder where `mlflow.transformers.log_model` puts them, recorded from it."""
    (target / "components" / "tokenizer").mkdir(parents=True)
    (target / "model").mkdir()
    (target / "MLmodel").write_text(MLMODEL)
    (target / "requirements.txt").write_text("torch\n")
    for path in folder.iterdir():
        place = "components/tokenizer" if path.name in TOKENIZER else "model"
        shutil.copy(path, target / place / path.name)
    return target


def crowd(database: Path, models: int) -> None:
    """So many models of others, each with a version, written into an MLflow store in SQLite that is there."""
    with sqlite3.connect(database) as store:
        rows = [(f"team-{number % 40:02}-model-{number:05}", number) for number in range(models)]
        store.executemany(
            "INSERT INTO registered_models (name, creation_time, last_updated_time, workspace)"
            " VALUES (?, ?, 0, 'default')",
            rows,
        )
        store.executemany(
            "INSERT INTO model_versions (name, version, creation_time, last_updated_time, current_stage, source,"
            " status, workspace) VALUES (?, 1, ?, 0, 'None', 'file:///nowhere', 'READY', 'default')",
            rows,
        )
    store.close()
