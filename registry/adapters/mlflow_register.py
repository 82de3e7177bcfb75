"""Logs a Hugging Face directory as a new model version, laid out as `mlflow.transformers` would, without torch or
transformers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from registry.adapters.mlflow_library import as_global_store, experiment_id, files_move, open_client, store_errors
from registry.conventions import MODEL_FOLDER, experiment_name
from registry.model_files import ModelCard, tokenizer_files

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel

TASK = "text-generation"
PYTHON_VERSION = "3.11"
OLDEST_TRANSFORMERS = "4.56.0"
"""Assumed for a config.json that does not say which version wrote it."""


def lay_out(staging: Path, folder: Path, paths: Iterable[str], card: ModelCard, logged: LoggedModel) -> None:
    """Fill `staging` with links to the files of `folder` and MLflow's description of them.

    Links, so that weights are copied once, by MLflow, into its own store.
    """
    paths = list(paths)
    for path in paths:
        _link(folder / path, staging / MODEL_FOLDER / path)
    for path in tokenizer_files(paths):
        _link(folder / path, staging / "components" / "tokenizer" / path)
    _write_environment(staging, card)
    _write_mlmodel(staging, card, logged)


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(source.resolve())


def _write_mlmodel(staging: Path, card: ModelCard, logged: LoggedModel) -> None:
    from mlflow.models import Model, ModelSignature
    from mlflow.types import ColSpec, DataType, Schema

    text = Schema([ColSpec(DataType.string)])
    model = Model(
        artifact_path=logged.artifact_location,
        model_uuid=logged.model_id,
        model_id=logged.model_id,
        signature=ModelSignature(inputs=text, outputs=text),
    )
    model.add_flavor("transformers", **_transformers_flavor(card))
    model.add_flavor(
        "python_function",
        loader_module="mlflow.transformers",
        python_version=PYTHON_VERSION,
        env={"conda": "conda.yaml", "virtualenv": "python_env.yaml"},
    )
    model.save(str(staging / "MLmodel"))


def _transformers_flavor(card: ModelCard) -> dict[str, Any]:
    flavor: dict[str, Any] = {
        "transformers_version": card.transformers_version or OLDEST_TRANSFORMERS,
        "code": None,
        "task": TASK,
        "instance_type": "TextGenerationPipeline",
        "pipeline_model_type": card.architecture,
        "source_model_name": MODEL_FOLDER,
        "model_binary": MODEL_FOLDER,
        "components": ["tokenizer"],
        # Any other class name could make MLflow load it with trust_remote_code; this one reads the files.
        "tokenizer_type": "AutoTokenizer",
    }
    return flavor | ({"torch_dtype": f"torch.{card.dtype}"} if card.dtype else {})


def _write_environment(staging: Path, card: ModelCard) -> None:
    """What MLflow installs to serve the version by itself."""
    import mlflow

    requirements = [
        f"mlflow=={mlflow.__version__}",
        f"transformers>={card.transformers_version or OLDEST_TRANSFORMERS}",
        "torch",
        "accelerate",
    ]
    (staging / "requirements.txt").write_text("\n".join(requirements) + "\n")
    python = {"python": PYTHON_VERSION, "build_dependencies": ["pip"], "dependencies": ["-r requirements.txt"]}
    conda = {
        "name": "mlflow-env",
        "channels": ["conda-forge"],
        "dependencies": [f"python={PYTHON_VERSION}", "pip", {"pip": requirements}],
    }
    (staging / "python_env.yaml").write_text(yaml.safe_dump(python, sort_keys=False))
    (staging / "conda.yaml").write_text(yaml.safe_dump(conda, sort_keys=False))


def log_version(
    tracking_uri: str,
    name: str,
    folder: Path,
    paths: Iterable[str],
    card: ModelCard,
    *,
    tags: Mapping[str, str],
    description: str | None,
) -> str:
    """Copy the files into MLflow's store, once, and make a version of them; returns its number.

    Raises:
        StoreUnreachable: the store did not do its part; what is cut off never becomes a version.
    """
    client = open_client(tracking_uri)
    with store_errors(tracking_uri), tempfile.TemporaryDirectory(prefix="tidegate-") as staging:
        experiment = experiment_id(client, experiment_name(name))
        logged = client.create_logged_model(experiment, name=name, model_type=card.architecture)
        lay_out(Path(staging), folder, paths, card, logged)
        with files_move():
            client.log_model_artifacts(logged.model_id, staging)
        # What is cut off before this stays PENDING in MLflow and never becomes a version.
        client.finalize_logged_model(logged.model_id, "READY")
        _make_model(client, name)
        with as_global_store(tracking_uri):
            version = client.create_model_version(
                name, f"models:/{logged.model_id}", tags=dict(tags), description=description, model_id=logged.model_id
            )
    return str(version.version)


def _make_model(client: MlflowClient, name: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)
    except MlflowException as error:
        # Every version but the first finds its model there.
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
