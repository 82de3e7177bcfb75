"""A Databricks workspace as MLflow's client asks it: logins, experiments and runs, Unity Catalog and its files.

Written after Databricks' reference of the REST API and after what MLflow's client sends; no workspace stood behind it.
What these documents limit is refused here too, so that a test sees what would be refused there.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit
from uuid import uuid4

from fakes.services.http import QuietHandler, answering

TOKEN, CLIENT_ID, CLIENT_SECRET = "dapi-s3cret", "11111111-robot", "dose-s3cret"
MLFLOW, CATALOG = "/api/2.0/mlflow/", "/api/2.0/mlflow/unity-catalog/"
FILES, DIRECTORIES = "/api/2.0/fs/files", "/api/2.0/fs/directories"
MOST_TAGS, MOST_TAG_CHARACTERS, MOST_RUN_TAG_BYTES = 50, 1000, 5000
FORBIDDEN = set(".,-=/:")
"""In the key of a tag of Unity Catalog."""


class Refused(Exception):
    """An error as Databricks answers it."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.body = status, json.dumps({"error_code": code, "message": message})


def tags_of(run: dict[str, Any]) -> dict[str, str]:
    return {tag["key"]: tag["value"] for tag in run["data"]["tags"]}


def missing(what: str) -> Refused:
    return Refused(404, "RESOURCE_DOES_NOT_EXIST", f"{what} does not exist")


@dataclass
class Workspace:
    """All that it keeps."""

    folders: set[str] = field(default_factory=lambda: {"/Shared"})
    experiments: dict[str, str] = field(default_factory=dict)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    models: dict[str, dict[str, str]] = field(default_factory=dict)
    """Aliases of each."""
    versions: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=lambda: {TOKEN})
    asked: list[str] = field(default_factory=list)
    """Method and path of each request."""

    def answer(self, method: str, path: str, said: dict[str, Any]) -> dict[str, Any]:
        name = path.removeprefix(CATALOG if path.startswith(CATALOG) else MLFLOW)
        verb = re.sub(r"\W", "_", f"{method.lower()} {'catalog ' if path.startswith(CATALOG) else ''}{name}")
        if path == "/api/2.0/workspace/mkdirs":
            self.folders.add(said["path"])
            return {}
        if (does := getattr(self, verb, None)) is None:
            raise Refused(404, "ENDPOINT_NOT_FOUND", f"No API found for '{method} {path}'")
        answered: dict[str, Any] = does(**{key: value for key, value in said.items() if key != "max_results"})
        return answered

    def get_experiments_get_by_name(self, experiment_name: str) -> dict[str, Any]:
        if experiment_name not in self.experiments:
            raise missing(f"Node {experiment_name}")
        found = {"experiment_id": self.experiments[experiment_name], "name": experiment_name}
        return {"experiment": found | {"lifecycle_stage": "active", "artifact_location": "dbfs:/databricks/x"}}

    def post_experiments_create(self, name: str, **_: Any) -> dict[str, Any]:
        if name.rpartition("/")[0] not in self.folders:
            raise missing(f"Parent directory {name.rpartition('/')[0]}")
        self.experiments[name] = str(len(self.experiments) + 1)
        return {"experiment_id": self.experiments[name]}

    def post_runs_create(
        self, experiment_id: str, start_time: int, tags: Sequence[Any] = (), run_name: str = "", **_: Any
    ) -> dict[str, Any]:
        number = uuid4().hex
        info = {"run_id": number, "run_uuid": number, "experiment_id": experiment_id, "status": "RUNNING"}
        info |= {"start_time": start_time, "lifecycle_stage": "active", "run_name": run_name}
        info |= {"artifact_uri": f"dbfs:/databricks/mlflow-tracking/{experiment_id}/{number}/artifacts"}
        self.runs[number] = {"info": info, "data": {"tags": []}}
        self._tag_run(number, tags)
        return {"run": self.runs[number]}

    def get_runs_get(self, run_id: str, **_: Any) -> dict[str, Any]:
        if run_id not in self.runs:
            raise missing(f"Run {run_id}")
        return {"run": self.runs[run_id]}

    def post_runs_log_batch(self, run_id: str, tags: Sequence[Any] = (), **_: Any) -> dict[str, Any]:
        self._tag_run(run_id, tags)
        return {}

    def post_runs_update(self, run_id: str, **changed: Any) -> dict[str, Any]:
        self.runs[run_id]["info"] |= changed
        return {"run_info": self.runs[run_id]["info"]}

    def post_runs_search(self, experiment_ids: list[str], filter: str = "", **_: Any) -> dict[str, Any]:
        wanted = dict(re.findall(r"tags\.`([^`]+)` = '([^']*)'", filter))
        status = re.search(r"attributes\.status = '(\w+)'", filter)
        found = [run for run in self.runs.values() if run["info"]["experiment_id"] in experiment_ids]
        found = [
            run for run in found if wanted.items() <= {tag["key"]: tag["value"] for tag in run["data"]["tags"]}.items()
        ]
        return {"runs": [run for run in reversed(found) if not status or run["info"]["status"] == status[1]]}

    def post_logged_models_search(self, **_: Any) -> dict[str, Any]:
        return {"models": []}

    def _tag_run(self, run: str, tags: Sequence[dict[str, str]]) -> None:
        kept = {tag["key"]: tag for tag in self.runs[run]["data"]["tags"]}
        for tag in tags:
            if len(tag["value"].encode()) > MOST_RUN_TAG_BYTES:
                raise Refused(400, "INVALID_PARAMETER_VALUE", f"tag {tag['key']} is too long")
            kept[tag["key"]] = tag
        self.runs[run]["data"]["tags"] = list(kept.values())

    def get_catalog_registered_models_search(self, **_: Any) -> dict[str, Any]:
        return {"registered_models": [{"name": name} for name in self.models]}

    def get_catalog_registered_models_get(self, name: str) -> dict[str, Any]:
        if name not in self.models:
            raise missing(f"Registered Model '{name}'")
        aliases = [{"alias": alias, "version": version} for alias, version in self.models[name].items()]
        return {"registered_model": {"name": name, "aliases": aliases}}

    def post_catalog_registered_models_create(self, name: str, **_: Any) -> dict[str, Any]:
        if len(name.split(".")) != 3:
            raise Refused(400, "INVALID_PARAMETER_VALUE", f"'{name}' is not a valid three-level name")
        if name in self.models:
            raise Refused(400, "RESOURCE_ALREADY_EXISTS", f"Registered Model '{name}' already exists")
        self.models[name] = {}
        return {"registered_model": {"name": name}}

    def post_catalog_registered_models_alias(self, name: str, alias: str, version: str) -> dict[str, Any]:
        self.models[name][alias] = version
        return {}

    def delete_catalog_registered_models_alias(self, name: str, alias: str) -> dict[str, Any]:
        self.models[name].pop(alias, None)
        return {}

    def post_catalog_model_versions_create(
        self, name: str, source: str, tags: Sequence[Any] = (), **_: Any
    ) -> dict[str, Any]:
        number = str(1 + sum(model == name for model, _ in self.versions))
        kept = {"name": name, "version": number, "source": source, "status": "PENDING_REGISTRATION", "tags": []}
        self.versions[name, number] = kept
        for tag in tags:
            self.post_catalog_model_versions_set_tag(name, number, **tag)
        return {"model_version": kept}

    def post_catalog_model_versions_finalize(self, name: str, version: str) -> dict[str, Any]:
        self._version(name, version)["status"] = "READY"
        return {"model_version": self._version(name, version)}

    def get_catalog_model_versions_get(self, name: str, version: str) -> dict[str, Any]:
        return {"model_version": self._version(name, version)}

    def get_catalog_model_versions_search(self, filter: str = "", **_: Any) -> dict[str, Any]:
        """As there, without tags and aliases."""
        found = [version for version in self.versions.values() if f"'{version['name']}'" in filter]
        return {"model_versions": [{key: each[key] for key in ("name", "version", "status")} for each in found]}

    def post_catalog_model_versions_set_tag(self, name: str, version: str, key: str, value: str) -> dict[str, Any]:
        kept = {tag["key"]: tag for tag in self._version(name, version)["tags"]} | {key: {"key": key, "value": value}}
        if FORBIDDEN & set(key) or len(key) > 255 or len(value) > MOST_TAG_CHARACTERS or len(kept) > MOST_TAGS:
            raise Refused(400, "INVALID_PARAMETER_VALUE", f"no tag {key} of {len(value)} characters; {len(kept)} tags")
        self._version(name, version)["tags"] = list(kept.values())
        return {}

    def delete_catalog_model_versions_delete_tag(self, name: str, version: str, key: str) -> dict[str, Any]:
        found = self._version(name, version)
        found["tags"] = [tag for tag in found["tags"] if tag["key"] != key]
        return {}

    def get_catalog_registered_models_is_databricks_sdk_models_artifact_repository_enabled(self) -> dict[str, Any]:
        return {"is_databricks_sdk_models_artifact_repository_enabled": True}

    def post_catalog_model_versions_emit_lineage(self, **_: Any) -> dict[str, Any]:
        return {}

    def listed(self, folder: str) -> dict[str, Any]:
        below = sorted(path for path in self.files if path.startswith(f"{folder}/"))
        if not below:
            raise Refused(404, "NOT_FOUND", f"{folder} does not exist")
        names = {path.removeprefix(f"{folder}/").partition("/")[0]: path for path in below}
        contents = [
            {"path": f"{folder}/{name}", "name": name, "is_directory": f"{folder}/{name}" != path}
            | ({} if f"{folder}/{name}" != path else {"file_size": len(self.files[path])})
            for name, path in names.items()
        ]
        return {"contents": contents}

    def put(self, path: str, content: bytes) -> None:
        """Files of a version that is ready stay as they are."""
        _, _, catalog, schema, model, version = path.split("/")[:6] if path.startswith("/Models/") else [""] * 6
        if catalog and self._version(f"{catalog}.{schema}.{model}", version)["status"] == "READY":
            raise Refused(403, "PERMISSION_DENIED", f"{path} is read-only")
        self.files[path] = content

    def _version(self, name: str, version: str) -> dict[str, Any]:
        if (name, version) not in self.versions:
            raise missing(f"Model version '{name}' '{version}'")
        return self.versions[name, version]


class Handler(QuietHandler):
    """Reads requests, and refuses those of nobody."""

    workspace: Workspace

    def do_GET(self) -> None:
        self._handle()

    do_POST = do_PUT = do_GET
    do_DELETE = do_HEAD = do_GET  # noqa: N815 -- as BaseHTTPRequestHandler calls them

    def _handle(self) -> None:
        path, content = unquote(urlsplit(self.path).path), self._content()
        self.workspace.asked.append(f"{self.command} {path}")
        try:
            self._route(path, content)
        except Refused as error:
            self.answer(error.body, error.status, content_type="application/json")

    def _route(self, path: str, content: bytes) -> None:
        if path == "/oidc/.well-known/oauth-authorization-server":
            host = f"http://{self.headers['Host']}/oidc/v1"
            self._json({"authorization_endpoint": f"{host}/authorize", "token_endpoint": f"{host}/token"})
        elif path == "/oidc/v1/token":
            self._json(self._token(dict(parse_qsl(content.decode()))))
        elif path == "/.well-known/databricks-config":
            host = f"http://{self.headers['Host']}"
            self._json({"oidc_endpoint": f"{host}/oidc", "workspace_id": "1", "account_id": "2"})
        elif self.headers.get("Authorization", "").removeprefix("Bearer ") not in self.workspace.tokens:
            raise Refused(403, "PERMISSION_DENIED", "Invalid access token.")
        elif path.startswith((FILES, DIRECTORIES)):
            self._file(path, content)
        else:
            query = {key: values[-1] for key, values in parse_qs(urlsplit(self.path).query).items()}
            self._json(self.workspace.answer(self.command, path, query | (json.loads(content) if content else {})))

    def _token(self, form: dict[str, str]) -> dict[str, Any]:
        """Of a robot, by its id and secret; one hour long."""
        given = b64decode(self.headers.get("Authorization", "").removeprefix("Basic ")).decode()
        if form.get("grant_type") != "client_credentials" or given != f"{CLIENT_ID}:{CLIENT_SECRET}":
            raise Refused(401, "invalid_client", "Client authentication failed")
        token = uuid4().hex
        self.workspace.tokens.add(token)
        return {"access_token": token, "token_type": "Bearer", "expires_in": 3600}

    def _file(self, path: str, content: bytes) -> None:
        kept = self.workspace.files
        if path.startswith(DIRECTORIES):
            listed = self.workspace.listed(path.removeprefix(DIRECTORIES))
            self._json({} if self.command == "HEAD" else listed)
        elif self.command == "PUT":
            self.workspace.put(path.removeprefix(FILES), content)
            self.answer(status=204)
        elif (name := path.removeprefix(FILES)) in kept:
            self.answer(kept[name], content_type="application/octet-stream")
        else:
            raise Refused(404, "NOT_FOUND", f"{name} does not exist")

    def _json(self, said: dict[str, Any]) -> None:
        self.answer(json.dumps(said), content_type="application/json")

    def _content(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().strip() or b"0", 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)


@contextmanager
def databricks() -> Iterator[tuple[str, Workspace]]:
    """The address of a workspace, and what it keeps, while the block lasts."""
    workspace = Workspace()
    with answering(type("Answering", (Handler,), {"workspace": workspace})) as address:
        yield f"http://{address}", workspace
