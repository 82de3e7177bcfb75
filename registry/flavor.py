"""The `MLmodel` that `mlflow.transformers.load_model` reads, next to the files that engines are started from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from registry.conventions import MODEL_FOLDER
from registry.model import PendingFiles

TOKENIZER_FILES = re.compile(r"(tokenizer|special_tokens|added_tokens|vocab|merges|chat_template|config|spiece)[^/]*")
"""What `AutoTokenizer` reads, next to sentencepiece's `*.model`."""
OLDEST_TRANSFORMERS = "4.56.0"
"""Assumed for a config.json that does not say which version wrote it."""
TEXT = json.dumps([{"type": "string", "required": True}])
"""The schema of what goes in and of what comes out."""


def tokenizer_files(paths: Iterable[str]) -> list[str]:
    """Those of the files that make a tokenizer without the model."""
    return [path for path in paths if "/" not in path and (TOKENIZER_FILES.fullmatch(path) or path.endswith(".model"))]


def mlmodel(config: Mapping[str, Any], architecture: str, pending: PendingFiles) -> dict[str, Any]:
    """What the file says.

    Args:
        config: the model's `config.json`.
        architecture: the class in transformers.
        pending: where the files are being kept.
    """
    dtype = config.get("dtype") or config.get("torch_dtype")
    flavor: dict[str, Any] = {
        "transformers_version": config.get("transformers_version") or OLDEST_TRANSFORMERS,
        "code": None,
        "task": "text-generation",
        "instance_type": "TextGenerationPipeline",
        "pipeline_model_type": architecture,
        "source_model_name": MODEL_FOLDER,
        "model_binary": MODEL_FOLDER,
        "components": ["tokenizer"],
        # Any other class name could make MLflow load it with trust_remote_code; this one reads the files.
        "tokenizer_type": "AutoTokenizer",
        **({"torch_dtype": f"torch.{dtype}"} if dtype else {}),
    }
    of_run = pending.source.startswith("runs:")
    return {
        "artifact_path": pending.address,
        "flavors": {"transformers": flavor, "python_function": {"loader_module": "mlflow.transformers"}},
        "is_signature_from_type_hint": False,
        "mlflow_version": version("mlflow-skinny"),
        **({"model_id": None, "run_id": pending.id} if of_run else {"model_id": pending.id}),
        "model_uuid": pending.id,
        "prompts": None,
        "signature": {"inputs": TEXT, "outputs": TEXT, "params": None},
        "type_hint_from_example": False,
        "utc_time_created": str(datetime.now(UTC).replace(tzinfo=None)),
    }
