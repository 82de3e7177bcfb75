"""MLflow by its own client, the one way to it: runs, model versions, files.

Each call runs in a thread of its own and ends in time: MLflow's own settings limit a read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from registry.conventions import MODEL_FOLDER, in_filter, runs_filter
from registry.errors import NO_PROXY, StoreRefused, StoreUnreachable, UnfitModel
from registry.mlflow_client import (
    EXISTS,
    MALFORMED,
    NOT_FOUND,
    RETRIES,
    SQLITE,
    TIMEOUT,
    TIMEOUT_SECONDS,
    all_pages,
    as_global_store,
    experiment_id,
    is_server,
    is_unwritten,
    load_mlflow,
    mlflow_errors,
    number_in,
    open_client,
    refused_by,
)
from registry.mlflow_files import MlflowFiles
from registry.model import GoldenSet, Metric, MlflowAddresses, PendingFiles, StoredModel, StoredRun, StoredVersion
from tidegate.core.text import redacted
from tidegate.core.threads import call_within

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, LoggedModel, Run
    from mlflow.entities.model_registry import ModelVersion as MlflowVersion
    from mlflow.store.entities import PagedList

HTTP_NOT_FOUND = 404
PAGE_RUNS = 100
"""Asked for at once at most: a run has all events of its delivery."""
OURS = "name LIKE 'tidegate/%'"
"""Experiments of ours."""

Answer = TypeVar("Answer")


class MlflowStore:
    """A `Store`, by one client that is opened when it is first asked.

    A SQLite file that is not there is a store without entries: reading makes none.
    """

    def __init__(self, tracking_uri: str, registry_uri: str | None = None) -> None:
        """`registry_uri` is that of the store with model versions, where it is another one.

        Raises:
            UsageError: a variable of MLflow's client holds no number.
        """
        self.at = MlflowAddresses(tracking=tracking_uri, registry=registry_uri or tracking_uri)
        self._seconds = max(60.0, 6.0 * number_in(TIMEOUT, TIMEOUT_SECONDS))
        number_in(RETRIES, 0)
        self._files = MlflowFiles(tracking_uri)

    @cached_property
    def client(self) -> MlflowClient:
        """MLflow's own, to be used within `ask` alone."""
        return open_client(self.at.tracking, self.at.registry)

    def create_run(
        self, experiment: str, *, name: str, started: int, tags: Mapping[str, str], params: Mapping[str, str]
    ) -> StoredRun:
        def ask(client: MlflowClient) -> StoredRun:
            from mlflow.entities import Param

            number = experiment_id(client, experiment)
            run = client.create_run(number, start_time=started, tags=dict(tags), run_name=name)
            client.log_batch(run.info.run_id, params=[Param(*item) for item in params.items()])
            return _to_run(run)

        return self.ask(ask)

    def run(self, run: str) -> StoredRun | None:
        def ask(client: MlflowClient) -> StoredRun | None:
            # An id that MLflow would not give is refused in other words.
            with refused_by(NOT_FOUND, MALFORMED):
                return _to_run(client.get_run(run))
            return None

        return None if is_unwritten(self.at.tracking) else self.ask(ask)

    def search_runs(
        self, experiment: str, tags: Mapping[str, str], *, status: str | None = None, last: int | None = None
    ) -> Sequence[StoredRun]:
        def ask(client: MlflowClient) -> Sequence[StoredRun]:
            found = client.get_experiment_by_name(experiment)
            wanted = runs_filter(tags, status)
            return _runs(client, [found.experiment_id], wanted, last) if found else []

        return [] if is_unwritten(self.at.tracking) else self.ask(ask)

    def runs_like(self, beginning: str) -> Sequence[StoredRun]:
        def ask(client: MlflowClient) -> Sequence[StoredRun]:
            def experiments(token: str | None) -> PagedList[Experiment]:
                return client.search_experiments(filter_string=OURS, page_token=token)

            found = [each.experiment_id for each in all_pages(experiments)]
            wanted = f"attributes.run_id LIKE {in_filter(f'{beginning}%')}"
            return _runs(client, found, wanted, None) if found else []

        return [] if is_unwritten(self.at.tracking) else self.ask(ask)

    def log(self, run: str, *, tags: Mapping[str, str] | None = None, metrics: Sequence[Metric] = ()) -> None:
        def ask(client: MlflowClient) -> None:
            from mlflow.entities import Metric as Point
            from mlflow.entities import RunTag

            entries = [RunTag(key, value) for key, value in (tags or {}).items()]
            points = [Point(each.name, each.value, each.at, each.step) for each in metrics]
            client.log_batch(run, tags=entries, metrics=points, synchronous=True)

        self.ask(ask)

    def claim(self, run: str, key: str, value: str) -> str:
        def ask(client: MlflowClient) -> str:
            from mlflow.entities import Param
            from mlflow.exceptions import MlflowException

            try:
                client.log_batch(run, params=[Param(key, value)], synchronous=True)
            except MlflowException:
                found: str | None = client.get_run(run).data.params.get(key)
                if found is None:
                    raise
                return found
            return value

        return self.ask(ask)

    def log_inputs(self, run: str, model: str, golden: GoldenSet | None) -> None:
        def ask(client: MlflowClient) -> None:
            from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelInput

            sets = [Dataset(golden.name, golden.digest[:36], "tidegate", "{}")] if golden else []
            shown = [DatasetInput(each, [InputTag("mlflow.data.context", "golden set")]) for each in sets]
            client.log_inputs(run, shown, [LoggedModelInput(model)] if model else [])

        self.ask(ask)

    def end_run(self, run: str, status: str, *, ended: int) -> None:
        self.ask(lambda client: client.set_terminated(run, status, end_time=ended))

    def delete_run(self, run: str) -> None:
        self.ask(lambda client: client.delete_run(run))

    def names_like(self, part: str, most: int) -> Sequence[str]:
        def ask(client: MlflowClient) -> Sequence[str]:
            wanted = f"name ILIKE {in_filter(f'%{part}%')}" if part else None
            return [model.name for model in client.search_registered_models(wanted, most, ["name ASC"])]

        return [] if is_unwritten(self.at.registry) else self._versions(ask)

    def model(self, name: str) -> StoredModel | None:
        def ask(client: MlflowClient) -> StoredModel | None:
            with refused_by(NOT_FOUND):
                aliases = client.get_registered_model(name).aliases
                # Some stores give the number as an integer, others as text.
                return StoredModel(name=name, aliases={alias: str(number) for alias, number in aliases.items()})
            return None

        return None if is_unwritten(self.at.registry) else self._versions(ask)

    def version(self, name: str, version: str) -> StoredVersion | None:
        def ask(client: MlflowClient) -> StoredVersion | None:
            with refused_by(NOT_FOUND):
                return _to_version(client.get_model_version(name, version))
            return None

        return self._versions(ask)

    def versions(self, name: str) -> Sequence[StoredVersion]:
        def ask(client: MlflowClient) -> Sequence[StoredVersion]:
            def page(token: str | None) -> PagedList[MlflowVersion]:
                return client.search_model_versions(f"name = {in_filter(name)}", page_token=token)

            return sorted(map(_to_version, all_pages(page)), key=lambda version: int(version.version))

        return self._versions(ask)

    def address(self, name: str, version: str) -> str:
        address = self._versions(lambda client: str(client.get_model_version_download_uri(name, version)))
        parts = urlsplit(address)
        if parts.scheme != "runs":
            return address
        number, _, path = (parts.netloc + parts.path).strip("/").partition("/")
        run = self.run(number)
        if run is None:
            raise UnfitModel(
                f"models:/{name}/{version}: run {number} logged its files, and is not in {self.at.shown.tracking}",
                hint="check the tracking URI: MLFLOW_TRACKING_URI",
            )
        return f"{run.artifacts.rstrip('/')}/{path}".rstrip("/")

    def set_alias(self, name: str, alias: str, version: str | None) -> None:
        if version is None:
            self._versions(lambda client: client.delete_registered_model_alias(name, alias))
        else:
            self._versions(lambda client: client.set_registered_model_alias(name, alias, version))

    def tag_version(self, name: str, version: str, tags: Mapping[str, str]) -> None:
        def ask(client: MlflowClient) -> None:
            for key, value in tags.items():
                client.set_model_version_tag(name, version, key, value)

        self._versions(ask)

    def add_version(
        self, name: str, files: PendingFiles, *, tags: Mapping[str, str], description: str | None = None
    ) -> str:
        of_run, ours = files.source.startswith("runs:"), files.address != ""
        if ours and of_run:
            self.end_run(files.id, "FINISHED", ended=now_ms())

        def ask(client: MlflowClient) -> str:
            if ours and not of_run:
                client.finalize_logged_model(files.id, "READY")
            # Every version but the first finds its model there.
            with refused_by(EXISTS):
                client.create_registered_model(name)
            known = {"run_id": files.id} if of_run else {"model_id": files.id}
            with nullcontext() if is_server(self.at.registry) else as_global_store(self.at.registry):
                # Only Databricks makes one later than it says.
                made = client.create_model_version(
                    name, files.source, tags=dict(tags), description=description, await_creation_for=0, **known
                )
            return str(made.version)

        return self._versions(ask)

    def begin_files(self, experiment: str, name: str, kind: str, tags: Mapping[str, str]) -> PendingFiles:
        if self.at.are_two:
            # Another store knows no logged model of this one, and takes no address that it cannot look up.
            shown = {"model": name, "architecture": kind}
            run = self.create_run(experiment, name=f"{name}: files", started=now_ms(), tags=tags, params=shown)
            return _files_of_run(run)

        def ask(client: MlflowClient) -> PendingFiles:
            # A registered model may have a dot in its name, a logged one may not.
            logged_name, number = name.replace(".", "-"), experiment_id(client, experiment)
            return _to_files(client.create_logged_model(number, logged_name, tags=dict(tags), model_type=kind))

        return self.ask(ask)

    def pending_files(self, experiment: str) -> Sequence[PendingFiles]:
        if self.at.are_two:
            runs = self.search_runs(experiment, {}, status="RUNNING")
            return [_files_of_run(run) for run in runs]

        def ask(client: MlflowClient) -> Sequence[PendingFiles]:
            found = client.get_experiment_by_name(experiment)
            if found is None:
                return []

            newest = [{"field_name": "creation_time", "ascending": False}]
            logged = client.search_logged_models([found.experiment_id], max_results=PAGE_RUNS, order_by=newest)
            return [_to_files(each) for each in logged if str(each.status) == "PENDING"]

        return [] if is_unwritten(self.at.tracking) else self.ask(ask)

    def abandon_files(self, files: PendingFiles) -> None:
        if files.source.startswith("runs:"):
            self.delete_run(files.id)
        else:
            self.ask(lambda client: client.delete_logged_model(files.id))

    def listed(self, address: str) -> Mapping[str, int]:
        try:
            return self.ask(lambda _: self._files.listed(address), moves_files=True)
        except StoreRefused as error:
            if error.status != HTTP_NOT_FOUND:
                raise
            return {}

    def fetch(self, address: str, path: str, target: Path) -> None:
        self.ask(lambda _: self._files.fetch(address, path, target), moves_files=True)

    def put(self, address: str, path: str, file: Path) -> None:
        self.ask(lambda _: self._files.put(address, path, file), moves_files=True)

    def _versions(self, call: Callable[[MlflowClient], Answer]) -> Answer:
        return self.ask(call, uri=self.at.registry)

    def ask(self, call: Callable[[MlflowClient], Answer], *, uri: str = "", moves_files: bool = False) -> Answer:
        """What the call returns, in time; one that hangs is left behind, and Ctrl-C waits for none.

        Args:
            call: with all requests that it makes.
            uri: of the store that it asks; by default the one with runs.
            moves_files: its time depends on what it moves; a request of it must not stand still.

        Raises:
            StoreUnreachable: in one line what went wrong, without secrets.
        """
        uri = uri or self.at.tracking
        # The time that a busy machine needs for it is not the store's.
        load_mlflow()

        def asked() -> Answer:
            with mlflow_errors(uri):
                return call(self.client)

        # A file answers at once, or is being made.
        seconds = None if moves_files or uri.startswith(SQLITE) else self._seconds
        try:
            return call_within(seconds, asked)
        except TimeoutError:
            place = f"MLflow store {redacted(uri)}"
            raise StoreUnreachable(f"{place}: no whole answer in {seconds:g} s", hint=NO_PROXY) from None


def _runs(client: MlflowClient, experiments: Sequence[str], wanted: str, last: int | None) -> Sequence[StoredRun]:
    def page(token: str | None) -> PagedList[Run]:
        most = min(last or PAGE_RUNS, PAGE_RUNS)
        return client.search_runs(list(experiments), wanted, max_results=most, page_token=token)

    return [_to_run(run) for run in islice(all_pages(page), last)]


def _to_run(run: Run) -> StoredRun:
    return StoredRun(
        id=run.info.run_id,
        status=run.info.status,
        started=run.info.start_time,
        ended=run.info.end_time or None,
        artifacts=run.info.artifact_uri or "",
        tags=dict(run.data.tags),
        params=dict(run.data.params),
        is_deleted=run.info.lifecycle_stage == "deleted",
    )


def _to_version(found: MlflowVersion) -> StoredVersion:
    # MLflow does not say the logged model besides.
    _, of_model, logged = (found.source or "").rpartition("models:/")
    known = {"run": found.run_id or "", "logged": logged if of_model and "/" not in logged else ""}
    return StoredVersion(name=found.name, version=str(found.version), tags=dict(found.tags), **known)


def _to_files(logged: LoggedModel) -> PendingFiles:
    return PendingFiles(
        source=f"models:/{logged.model_id}", address=logged.artifact_location, tags=dict(logged.tags or {})
    )


def _files_of_run(run: StoredRun) -> PendingFiles:
    address = f"{run.artifacts.rstrip('/')}/{MODEL_FOLDER}"
    return PendingFiles(source=f"runs:/{run.id}/{MODEL_FOLDER}", address=address, tags=run.tags)


def now_ms() -> int:
    """Milliseconds since 1970, as MLflow has them."""
    return int(time.time() * 1000)
