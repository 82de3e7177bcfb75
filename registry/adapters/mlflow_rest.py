"""Runs, model versions and artifacts of an MLflow server, by its REST API 2.0 and its mlflow-artifacts API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

from registry.adapters.mlflow_address import API, ARTIFACTS_API, root_on
from registry.adapters.mlflow_calls import all_pages
from registry.adapters.mlflow_http import MlflowServer
from registry.conventions import in_filter, runs_filter
from registry.errors import RegistryError, StoreRefused
from registry.model import NewVersion, StoredMetric, StoredModel, StoredRun, StoredVersion
from registry.ports import ArtifactStore

NOT_FOUND = "RESOURCE_DOES_NOT_EXIST"
EXISTS = "RESOURCE_ALREADY_EXISTS"
MALFORMED = "INVALID_PARAMETER_VALUE"
PAGE_RUNS = 1000
"""Asked for at once at most; MLflow's own default."""
PAGE_VERSIONS = 1000
MOST_FILES = 10_000
"""Of a version or a delivery, its folders included."""


class RestExperiments:
    """Numbers of experiments. Each is asked for once: experiments keep them."""

    def __init__(self, server: MlflowServer) -> None:
        self._server = server
        self._known: dict[str, str] = {}

    def made(self, name: str) -> str:
        """Its number; it is made when there is none."""
        number = self.known(name)
        if number is not None:
            return number
        try:
            made = self._server.send("POST", f"{API}/experiments/create", {"name": name})
        except StoreRefused as error:
            # Somebody else made it meanwhile.
            if error.code != EXISTS:
                raise
        else:
            return str(made["experiment_id"])
        number = self.known(name)
        if number is None:
            raise RegistryError(f"MLflow refuses to create experiment {name}, and does not find it", hint="try again")
        return number

    def known(self, name: str) -> str | None:
        """Its number; None when there is none."""
        if name not in self._known:
            answer = _said_of(self._server, "experiments/get-by-name", {"experiment_name": name})
            if answer is None:
                return None
            found = answer["experiment"]
            if found["lifecycle_stage"] != "active":
                raise RegistryError(f"MLflow experiment {name} is deleted", hint="restore it in MLflow, or purge it")
            self._known[name] = str(found["experiment_id"])
        return self._known[name]


class RestRuns:
    """A `RunStore`."""

    def __init__(self, server: MlflowServer) -> None:
        self._server = server
        self._experiments = RestExperiments(server)

    def create_run(
        self, experiment: str, *, name: str, started: int, tags: Mapping[str, str], params: Mapping[str, str]
    ) -> StoredRun:
        body = {
            "experiment_id": self._experiments.made(experiment),
            "start_time": started,
            "run_name": name,
            "tags": key_value_pairs(tags),
        }
        # Carried out twice it would be two deliveries, of which one never moves and is waited for.
        run = self._server.send("POST", f"{API}/runs/create", body, may_repeat=False)["run"]
        self._log(run["info"]["run_id"], params=key_value_pairs(params))
        return _to_run(run)

    def run(self, run: str) -> StoredRun | None:
        try:
            return _to_run(self._server.get(f"{API}/runs/get", {"run_id": run})["run"])
        except StoreRefused as error:
            # An id that MLflow would not give is refused in other words.
            if error.code not in (NOT_FOUND, MALFORMED):
                raise
            return None

    def search_runs(
        self, experiment: str, tags: Mapping[str, str], *, status: str | None = None, last: int | None = None
    ) -> Sequence[StoredRun]:
        number = self._experiments.known(experiment)
        if number is None:
            return []
        most = min(last or PAGE_RUNS, PAGE_RUNS)
        body = {"experiment_ids": [number], "filter": runs_filter(tags, status), "max_results": most}

        def page(token: str | None) -> tuple[Sequence[Mapping[str, Any]], str]:
            said = self._server.send("POST", f"{API}/runs/search", body | ({"page_token": token} if token else {}))
            return said.get("runs", []), said.get("next_page_token") or ""

        return [_to_run(run) for run in islice(all_pages(page), last)]

    def log(self, run: str, *, tags: Mapping[str, str] | None = None, metrics: Sequence[StoredMetric] = ()) -> None:
        points = [{"key": each.name, "value": each.value, "timestamp": each.at, "step": each.step} for each in metrics]
        self._log(run, tags=key_value_pairs(tags or {}), metrics=points)

    def end_run(self, run: str, status: str, *, ended: int) -> None:
        self._server.send("POST", f"{API}/runs/update", {"run_id": run, "status": status, "end_time": ended})

    def delete_run(self, run: str) -> None:
        self._server.send("POST", f"{API}/runs/delete", {"run_id": run})

    def _log(self, run: str, **what: Any) -> None:
        self._server.send("POST", f"{API}/runs/log-batch", {"run_id": run, **what})


class RestModels:
    """A `ModelStore`."""

    def __init__(self, server: MlflowServer) -> None:
        self._server = server

    def names_like(self, part: str, most: int) -> Sequence[str]:
        query = {"max_results": str(most), "order_by": "name ASC"}
        query |= {"filter": f"name ILIKE {in_filter(f'%{part}%')}"} if part else {}
        page = self._server.get(f"{API}/registered-models/search", query)
        return [model["name"] for model in page.get("registered_models", [])]

    def model(self, name: str) -> StoredModel | None:
        answer = _said_of(self._server, "registered-models/get", {"name": name})
        if answer is None:
            return None
        found = answer["registered_model"]
        return StoredModel(name=name, aliases={each["alias"]: each["version"] for each in found.get("aliases", [])})

    def version(self, name: str, version: str) -> StoredVersion | None:
        answer = _said_of(self._server, "model-versions/get", {"name": name, "version": version})
        return None if answer is None else _to_version(answer["model_version"])

    def versions(self, name: str) -> Sequence[StoredVersion]:
        query = {"filter": f"name = {in_filter(name)}", "max_results": str(PAGE_VERSIONS)}

        def page(token: str | None) -> tuple[Sequence[Mapping[str, Any]], str]:
            said = self._server.get(f"{API}/model-versions/search", query | ({"page_token": token} if token else {}))
            return said.get("model_versions", []), said.get("next_page_token") or ""

        return sorted(map(_to_version, all_pages(page)), key=lambda version: int(version.version))

    def set_alias(self, name: str, alias: str, version: str | None) -> None:
        place, said = f"{API}/registered-models/alias", {"name": name, "alias": alias}
        if version is None:
            self._server.send("DELETE", place, said)
        else:
            self._server.send("POST", place, said | {"version": version})

    def tag_version(self, name: str, version: str, tags: Mapping[str, str | None]) -> None:
        for key, value in tags.items():
            said = {"name": name, "version": version, "key": key}
            if value is None:
                self._server.send("DELETE", f"{API}/model-versions/delete-tag", said)
            else:
                self._server.send("POST", f"{API}/model-versions/set-tag", said | {"value": value})

    def add_version(self, new: NewVersion) -> str:
        self._make_model(new.name)
        said = {"model_id": new.logged, "run_id": new.run, "description": new.description}
        body = {"name": new.name, "source": new.source, "tags": key_value_pairs(new.tags)}
        body |= {key: value for key, value in said.items() if value}
        # Carried out twice it would be two versions.
        made = self._server.send("POST", f"{API}/model-versions/create", body, may_repeat=False)
        return str(made["model_version"]["version"])

    def address(self, name: str, version: str) -> str:
        query = {"name": name, "version": version}
        return str(self._server.get(f"{API}/model-versions/get-download-uri", query)["artifact_uri"])

    def _make_model(self, name: str) -> None:
        try:
            self._server.send("POST", f"{API}/registered-models/create", {"name": name})
        except StoreRefused as error:
            # Every version but the first finds its model there.
            if error.code != EXISTS:
                raise


def _said_of(server: MlflowServer, path: str, query: Mapping[str, str]) -> dict[str, Any] | None:
    """What the server says of one thing; None when there is none."""
    try:
        return server.get(f"{API}/{path}", query)
    except StoreRefused as error:
        if error.code != NOT_FOUND:
            raise
        return None


def key_value_pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    """As MLflow takes tags and parameters."""
    return [{"key": key, "value": value} for key, value in values.items()]


def _values(pairs: Sequence[Mapping[str, str]]) -> dict[str, str]:
    return {pair["key"]: pair.get("value", "") for pair in pairs}


def _to_run(found: Mapping[str, Any]) -> StoredRun:
    info = found["info"]
    return StoredRun(
        id=info["run_id"],
        status=info["status"],
        started=int(info["start_time"]),
        ended=int(info["end_time"]) if info.get("end_time") else None,
        artifacts=info["artifact_uri"],
        tags=_values(found.get("data", {}).get("tags", [])),
        is_deleted=info.get("lifecycle_stage") == "deleted",
    )


def _to_version(found: Mapping[str, Any]) -> StoredVersion:
    return StoredVersion(name=found["name"], version=str(found["version"]), tags=_values(found.get("tags", [])))


HTTP_NOT_FOUND = 404


class ProxiedArtifacts:
    """An `ArtifactStore`. What lies elsewhere, such as in a bucket, is left to another one."""

    def __init__(self, server: MlflowServer, elsewhere: ArtifactStore) -> None:
        self._server, self._elsewhere = server, elsewhere

    def upload(self, run: StoredRun, path: Path, folder: str) -> None:
        root = root_on(self._server.url, run.artifacts)
        if root is None:
            self._elsewhere.upload(run, path, folder)
        else:
            self._server.upload(artifact_path(root, folder, path.name), path)

    def files(self, run: StoredRun, folder: str) -> Mapping[str, int]:
        root = root_on(self._server.url, run.artifacts)
        if root is None:
            return self._elsewhere.files(run, folder)
        return dict(sorted(files_below(self._server, root, folder, may_lack=True)))

    def download(self, run: StoredRun, path: str, target: Path) -> None:
        root = root_on(self._server.url, run.artifacts)
        if root is None:
            self._elsewhere.download(run, path, target)
        else:
            self._server.download(artifact_path(root, path), target)


def files_below(
    server: MlflowServer, root: str, folder: str = "", *, may_lack: bool = False
) -> Iterator[tuple[str, int]]:
    """Each file that the server has below `folder` of `root`: its path from `root`, and its bytes.

    Args:
        server: hands out artifacts itself.
        root: as `root_on` gives it.
        folder: of `root`; empty for all of it.
        may_lack: a folder that the server does not know is an empty one.

    Raises:
        RegistryError: what the server names is no name of a file.
        StoreRefused, StoreUnreachable: as `MlflowServer.get`.
    """
    folders, count = [folder], 0
    while folders:
        folder = folders.pop()
        try:
            listed = server.get(ARTIFACTS_API, {"path": "/".join(filter(None, (root, folder)))}).get("files", [])
        except StoreRefused as error:
            if not may_lack or error.status != HTTP_NOT_FOUND:
                raise
            continue
        count += len(listed)
        if count > MOST_FILES:
            raise RegistryError(
                f"MLflow store {server.url} lists more than {MOST_FILES} files and folders below {root}",
                hint="log the version again without the files that it does not need",
            )
        for file in listed:
            name = file["path"]
            # What a server names is asked for and written here: nothing of it may lead out of the folder.
            if name in ("", ".", "..") or "/" in name or "\\" in name:
                raise RegistryError(
                    f"MLflow store {server.url} lists an artifact named {name!r}",
                    hint="log the version again with plain file names",
                )
            path = f"{folder}/{name}" if folder else name
            if file.get("is_dir"):
                folders.append(path)
            else:
                yield path, int(file.get("file_size") or 0)


def artifact_path(*parts: str) -> str:
    """Of an artifact, on a server that hands it out itself."""
    return f"{ARTIFACTS_API}/{quote('/'.join(part for part in parts if part not in ('', '.')))}"
