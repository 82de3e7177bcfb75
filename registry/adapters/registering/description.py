"""What MLflow keeps next to a model's files, as `mlflow.transformers` writes it, without torch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from registry.conventions import MODEL_FOLDER
from registry.model import PendingVersion
from registry.model_files import ModelCard, tokenizer_files

TASK = "text-generation"
PYTHON_VERSION = "3.11"
OLDEST_TRANSFORMERS = "4.56.0"
"""Assumed for a config.json that does not say which version wrote it."""
MLFLOW = version("mlflow-skinny")
TEXT = json.dumps([{"type": "string", "required": True}])
"""The schema of what goes in and of what comes out."""


def lay_out(staging: Path, folder: Path, paths: Iterable[str], card: ModelCard, pending: PendingVersion) -> None:
    """Fill `staging` with links to the files of `folder` and MLflow's description of them.

    Links, so that weights are copied once, into MLflow's own store.
    """
    paths = list(paths)
    for path in paths:
        _link(folder / path, staging / MODEL_FOLDER / path)
    for path in tokenizer_files(paths):
        _link(folder / path, staging / "components" / "tokenizer" / path)
    _write_environment(staging, card)
    (staging / "MLmodel").write_text(yaml.safe_dump(_mlmodel(card, pending), default_flow_style=False))


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(source.resolve())


def _mlmodel(card: ModelCard, pending: PendingVersion) -> dict[str, Any]:
    environment = {"conda": "conda.yaml", "virtualenv": "python_env.yaml"}
    python_function = {"loader_module": "mlflow.transformers", "python_version": PYTHON_VERSION, "env": environment}
    return {
        "artifact_path": pending.artifacts,
        "flavors": {"transformers": _transformers_flavor(card), "python_function": python_function},
        "is_signature_from_type_hint": False,
        "mlflow_version": MLFLOW,
        **({"model_id": None, "run_id": pending.id} if pending.run_folder else {"model_id": pending.id}),
        "model_uuid": pending.id,
        "prompts": None,
        "signature": {"inputs": TEXT, "outputs": TEXT, "params": None},
        "type_hint_from_example": False,
        "utc_time_created": str(datetime.now(UTC).replace(tzinfo=None)),
    }


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
    requirements = [
        f"mlflow=={version('mlflow-skinny')}",
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
