"""A model version of the registry becomes an engine of this machine: download, check, build.

A build starts engines in order to learn from them, as a fleet starts engines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine_images.adapters.builder import Builder
from engine_images.adapters.model_version import read_version
from engine_images.build.engine_root import PORT, READY_PATH, serve, sweep
from engine_images.build.model import BuildRequest, BuiltEngine, build_request
from engine_images.checks.servable import problems_of, process_bytes, require_servable, sampling_of
from engine_images.manifest import ModelContract
from engine_images.model import EngineEnvironment, LaunchCommand
from engine_images.spec import EngineSettings
from pipelines.adapters.samples import file_of
from pipelines.authority.engine_images import recorded_settings
from pipelines.spec.trust import SpecTrust
from pipelines.state import StateFolder
from registry.model import EngineRecord, ModelVersion
from registry.versions import MlflowRegistry
from rollouts.adapters.engine_process import EngineProcess, EngineProcesses
from rollouts.adapters.http import Http
from rollouts.local import machine
from rollouts.local.machine import Admission
from rollouts.model import REGION, Engine
from tidegate.core.clock import Clock
from tidegate.core.threads import call_in_thread

NAME = "build"


def engine_of(launch: LaunchCommand, *, version: str, digest: str, model: str) -> Engine:
    """What a fleet is asked to run so that a built engine is started by its entrypoint."""
    return Engine(version=version, digest=digest, model=model, ready_path=READY_PATH, **launch.model_dump())


class BuildServer:
    """An `EngineServer` of a build."""

    def __init__(self, running: EngineProcess, http: Http, seconds: float) -> None:
        """`seconds` is how long it took to answer."""
        self._running = running
        self._http = http
        self.url = running.url
        self.seconds = seconds

    def memory_bytes(self) -> int:
        return self._running.child.memory_bytes()

    async def stop(self) -> None:
        try:
            await self._running.stop()
        finally:
            await self._http.aclose()


class BuildServers:
    """The `EngineServers` of a build."""

    def __init__(self, clock: Clock, *, name: str) -> None:
        """`name` is what requests carry in their `model` field."""
        self._clock = clock
        self._name = name

    async def start(self, launch: LaunchCommand, log: Path) -> BuildServer:
        engine = engine_of(launch, version=NAME, digest="", model=self._name)
        http = Http()
        try:
            begun = self._clock.monotonic()
            processes = EngineProcesses(
                NAME, logs=log.parent, http=http, admission=Admission(machine.measure), clock=self._clock
            )
            running = await processes.start(engine, log_file=log)
            return BuildServer(running, http, self._clock.monotonic() - begun)
        except BaseException:
            await http.aclose()
            raise


Progress = Callable[[str], None]


@dataclass(frozen=True)
class LocalEngines:
    """Engines on this machine, each built once."""

    registry: MlflowRegistry
    settings: EngineSettings
    environment: EngineEnvironment
    state: StateFolder
    builder: Builder
    name: str
    """What requests carry in their `model` field."""
    threads: int
    """What one engine may use."""
    allowed: SpecTrust = field(default_factory=SpecTrust)
    """What records of engines may say, as specs may."""

    def folder(self, version: ModelVersion) -> Path:
        """Where the version's files are, once prepared."""
        return self.state.engines / version.digest / "model"

    async def prepare(self, version: ModelVersion, progress: Progress, record: EngineRecord | None = None) -> Engine:
        """That of the record, or of the spec's settings.

        Raises:
            UntrustedImage: the record says what the trust file does not allow.
        """
        if record is None:
            return await self._prepare(version, progress, version.version)
        recorded = replace(self, settings=recorded_settings(version, record, self.allowed))
        return await recorded._prepare(version, progress, record.name)

    async def _prepare(self, version: ModelVersion, progress: Progress, name: str) -> Engine:
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
            # Always, so that a champion of before has it too; nothing is kept unless a delivery writes there.
            samples=file_of(self.state.samples.absolute(), REGION),
            known_as=name if name != version.version else None,
        )
        return engine_of(launch, version=name, digest=version.digest, model=self.name)

    async def build(self, version: ModelVersion, progress: Progress) -> tuple[BuildRequest, BuiltEngine]:
        """The engine of a version, and what it was built from.

        Raises:
            CannotBeServed: with everything that stands in the way.
            NotProven: what was built is not loaded again, or is another model than the eager one.
        """
        # Every time: files that somebody changed since must not be served.
        await call_in_thread(self.registry.download, version, self.folder(version).parent)
        source = await call_in_thread(self.registry.source, version)
        order = await call_in_thread(self._order, version, source)
        return order, await self.builder.build(order, progress)

    def _order(self, version: ModelVersion, source: str) -> BuildRequest:
        folder = self.folder(version)
        files = read_version(folder)
        require_servable(problems_of(files, self.settings), version.uri)
        contract = ModelContract(
            name=version.name,
            version=version.version,
            digest=version.digest,
            files=version.files,
            source=source,
            sampling=sampling_of(files, self.settings),
        )
        return build_request(
            contract,
            folder,
            self.settings,
            self.environment,
            name=self.name,
            memory_bytes=process_bytes(files, self.settings),
        )
