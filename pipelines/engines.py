"""A model version of the registry becomes an engine that a fleet can run: download, check, build."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine_images.adapters.engine_root import PORT, serve, sweep
from engine_images.build.builder import Builder
from engine_images.build.model import Built, Order
from engine_images.build.order import order_for
from engine_images.checks.servable import problems_of, refuse, sampling_of
from engine_images.manifest import ModelContract
from engine_images.model import EngineEnvironment
from engine_images.spec import EngineSettings
from pipelines.build_servers import engine_of
from pipelines.ports import Registry
from pipelines.state import StateFolder
from registry.model import ModelVersion
from rollouts.model import Engine
from tidegate.core.beside import beside

Progress = Callable[[str], None]


@dataclass(frozen=True)
class LocalEngines:
    """Engines on this machine, each built once."""

    registry: Registry
    settings: EngineSettings
    environment: EngineEnvironment
    state: StateFolder
    builder: Builder
    name: str
    """What requests carry in their `model` field."""
    threads: int
    """What one engine may use."""

    def folder(self, version: ModelVersion) -> Path:
        """Where the version's files are, once prepared."""
        return self._workdir(version) / "model"

    async def prepare(self, version: ModelVersion, progress: Progress) -> Engine:
        """Files in place and proven against their digests, the engine built or found, the command that serves it."""
        order, built = await self.build(version, progress)
        sweep(self.state.run)
        launch = serve(
            order,
            built.root,
            # Absolute: an engine does not start in this folder.
            (self.state.run / PORT).absolute(),
            threads=self.threads,
            model_infos=(self.state.builds / "modelinfos").absolute(),
        )
        return engine_of(launch, version=version.version, digest=version.digest, model=self.name)

    async def build(self, version: ModelVersion, progress: Progress) -> tuple[Order, Built]:
        """The engine of a version, and what it was built from.

        Raises:
            CannotBeServed: with everything that stands in the way.
            NotProven: what was built is not loaded again, or is another model than the eager one.
        """
        # Every time: files that somebody changed since must not be served.
        await beside(self.registry.download, version, self._workdir(version))
        source = await beside(self.registry.source, version)
        order = await beside(self._order, version, source)
        return order, await self.builder.build(order, progress)

    def _order(self, version: ModelVersion, source: str) -> Order:
        folder = self.folder(version)
        refuse(problems_of(folder, self.settings), version.uri)
        contract = ModelContract(
            name=version.name,
            version=version.version,
            digest=version.digest,
            files=version.files,
            source=source,
            sampling=sampling_of(folder, self.settings),
        )
        return order_for(contract, folder, self.settings, self.environment, name=self.name)

    def _workdir(self, version: ModelVersion) -> Path:
        return self.state.engines / version.digest
