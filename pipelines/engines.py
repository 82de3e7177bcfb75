"""A model version of the registry becomes an engine that a fleet can run: download, verify, command line."""

from __future__ import annotations

from pathlib import Path

from engine_images.adapters.weights import read_weights
from engine_images.launch import launch_command
from engine_images.model import EngineEnvironment
from engine_images.spec import EngineSettings
from pipelines.ports import Registry
from pipelines.state import StateFolder
from registry.model import ModelVersion
from rollouts.model import Engine


class LocalEngines:
    """Engines on this machine: one folder for each digest, one compile cache for all."""

    def __init__(
        self,
        registry: Registry,
        settings: EngineSettings,
        environment: EngineEnvironment,
        state: StateFolder,
        *,
        name: str,
        threads: int,
    ) -> None:
        """`name` is what requests carry in their `model` field; `threads` is what one engine may use."""
        self._registry = registry
        self._settings = settings
        self._environment = environment
        self._state = state
        self._name = name
        self._threads = threads

    def folder(self, version: ModelVersion) -> Path:
        """Where the version's files are, once prepared."""
        return self._workdir(version) / "model"

    def prepare(self, version: ModelVersion) -> Engine:
        """Files in place and proven against their digests, and the command that serves them."""
        # Every time: files that somebody changed since must not be served.
        self._registry.download(version, self._workdir(version))
        launch = launch_command(
            self._settings,
            self._environment,
            read_weights(self.folder(version)),
            name=self._name,
            workdir=self._workdir(version).resolve(),
            cache=self._state.cache,
            threads=self._threads,
        )
        return Engine(
            version=version.version,
            digest=version.digest,
            model=self._name,
            command=launch.command,
            environment=launch.environment,
            workdir=launch.workdir,
            memory_bytes=launch.memory_bytes,
        )

    def _workdir(self, version: ModelVersion) -> Path:
        return self._state.engines / version.digest
