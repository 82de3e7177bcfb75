"""Opens an MLflow tracking store, keeps MLflow quiet, and turns its errors into tidegate's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from registry.conventions import experiment_name
from registry.errors import RegistryError, StoreUnreachable

if TYPE_CHECKING:
    from mlflow import MlflowClient

SQLITE = "sqlite:///"
NOT_ENDED = "RUNNING"
"""MLflow's status of a run that nobody has ended."""
NOT_FOUND = "RESOURCE_DOES_NOT_EXIST"
"""What MLflow calls an error of which nothing is wrong but that nothing is there."""

_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    # MLflow's own 7 retries take four minutes to say that nobody is there; 3 wait about 15 seconds.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
}


def embedded_uri(state: Path) -> str:
    """The tracking URI of the registry inside the state folder: a SQLite file, artifacts beside it."""
    return f"{SQLITE}{state.absolute() / 'mlflow.db'}"


def open_client(tracking_uri: str) -> MlflowClient:
    """A client of that store; makes a SQLite store, and migrates it, on first use (about 3 seconds).

    Raises:
        StoreUnreachable: the store cannot be opened.
    """
    if tracking_uri.startswith(SQLITE):
        _make_parent(tracking_uri)
    with store_errors(tracking_uri):
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri, registry_uri=tracking_uri)
        client.search_registered_models(max_results=1)
    return client


def experiment_id(client: MlflowClient, model: str) -> str:
    """The id of the model's experiment, made when there is none yet."""
    from mlflow.exceptions import MlflowException

    name = experiment_name(model)
    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return str(client.create_experiment(name, artifact_location=_artifact_location(client.tracking_uri)))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            found = client.get_experiment_by_name(name)
    if found is None or found.lifecycle_stage != "active":
        raise RegistryError(f"MLflow experiment {name} is deleted", hint="restore it in MLflow, or purge it")
    return str(found.experiment_id)


@contextmanager
def as_global_store(tracking_uri: str) -> Iterator[None]:
    """Make this store MLflow's global one for a moment.

    MLflow's SQL registry looks up the logged model behind a new version through the global client, whatever
    store the version is made in.
    """
    import mlflow

    chosen = mlflow.is_tracking_uri_set()  # type: ignore[no-untyped-call]
    before = mlflow.get_tracking_uri() if chosen else None
    mlflow.set_tracking_uri(tracking_uri)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(before)  # type: ignore[arg-type]  # None means: as if never set


@contextmanager
def store_errors(tracking_uri: str) -> Iterator[None]:
    """Say in one line that the store did not answer, whatever MLflow raised; details go to `--debug`.

    MLflow reads its settings from the environment when it is imported, so this sets them first; those that a
    user has set are left as they are.
    """
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError, ImportError) as error:
        reason = _first_line(error)
        raise StoreUnreachable(
            f"MLflow store {tracking_uri}: {reason}",
            hint="check the tracking URI and that the store is running",
            detail=str(error),
        ) from error


def _make_parent(tracking_uri: str) -> None:
    folder = Path(tracking_uri.removeprefix(SQLITE)).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnreachable(f"MLflow store {tracking_uri}: cannot make {folder}: {error.strerror}") from error


def _artifact_location(tracking_uri: str) -> str | None:
    """Beside a SQLite file; a server decides for itself."""
    if not tracking_uri.startswith(SQLITE):
        return None
    return (Path(tracking_uri.removeprefix(SQLITE)).absolute().parent / "artifacts").as_uri()


def _first_line(error: BaseException) -> str:
    if "Max retries exceeded" in str(error) or "Connection" in type(error).__name__:
        return "no answer"
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
