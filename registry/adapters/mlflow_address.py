"""What addresses of MLflow stores mean, and how long one is waited for, by the variables of MLflow's own client."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import ceil
from urllib.parse import urlsplit

from tidegate.core.errors import UsageError

PROXIED = "mlflow-artifacts"
"""The scheme of artifacts that the tracking server hands out itself."""
TIMEOUT = "MLFLOW_HTTP_REQUEST_TIMEOUT"
"""The variable that limits a request, in whole seconds."""
TIMEOUT_SECONDS = 10
"""Of a request where nothing is said; MLflow's own are two minutes."""
RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
TRANSFER_SECONDS = 120.0
"""Of silence in the middle of a file: a store may take its time to put it away."""
ARTIFACTS_API = "/api/2.0/mlflow-artifacts/artifacts"
LONGEST_NUMBER = 9
CHECK = "check the tracking URI and that the store is running"
TAKES_NOT = "MLflow answers, and takes no such value: change what the message names"


def limit_calls(seconds: float) -> None:
    """Let each call to MLflow take so long, in stores that are opened from now on, unless the environment says it."""
    default(TIMEOUT, str(ceil(seconds)))


def default(name: str, value: str) -> None:
    """Set a variable that says nothing."""
    os.environ[name] = os.environ.get(name) or value


def call_seconds(environment: Mapping[str, str]) -> float:
    """How long a call to a store may take with all requests that it makes, such as for the pages of a list.

    Raises:
        UsageError: a variable holds no number.
    """
    _number(environment, RETRIES, 0)
    return max(60.0, 6.0 * _number(environment, TIMEOUT, TIMEOUT_SECONDS))


def is_server(uri: str) -> bool:
    """Whether that is the address of an MLflow server, and not a store that MLflow's library opens itself."""
    return urlsplit(uri).scheme in {"http", "https"}


def unreadable_credentials() -> UsageError:
    """What is wrong with the file of a name and a password; nothing of it is quoted."""
    return UsageError(
        "~/.mlflow/credentials: found no INI file; expected a section [mlflow] with mlflow_tracking_username and "
        "mlflow_tracking_password, in which %% stands for %",
        hint="correct the file, or remove it",
    )


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name)
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < LONGEST_NUMBER):
        raise UsageError(f"{name}: expected a whole number of 0 or more; found {text[:LONGEST_NUMBER]!r}")
    return int(text)
