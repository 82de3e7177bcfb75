"""A model version of the registry becomes an engine of this machine: download, check, build.

A build starts engines in order to learn from them, as a fleet starts engines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine_images.adapters.model_version import read_version
from engine_images.build.builder import Builder, build_request
from engine_images.build.engine_root import PORT, READY_PATH, serve, sweep
from engine_images.build.model import BuildRequest, BuiltEngine
from engine_images.build.proof import GoldenTerms
from engine_images.checks.servable import problems_of, require_servable, sampling_of, share_of, sharing_gpus
from engine_images.manifest import ModelContract
from engine_images.model import EngineEnvironment, LaunchCommand
from engine_images.spec import EngineSettings
from gates.answers.golden import GoldenPrompt, ask_golden
from gates.model import Scorer
from gates.ports import Embedder, LogLikelihood
from pipelines.adapters.samples import file_of
from pipelines.authority.engine_images import recorded_settings
from pipelines.ports import Chat, Registry
from pipelines.spec.trust import SpecTrust
from pipelines.state import StateFolder
from registry.model import EngineRecord, ModelVersion
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
    """A `Server` of `engine_images.ports`."""

    def __init__(self, running: EngineProcess, http: Http, seconds: float) -> None:
        """`seconds` is how long it took to answer."""
        self._running = running
        self._http = http
        self.url = running.url
        self.seconds = seconds

    def memory_bytes(self) -> int:
        return self._running.memory_bytes()

    async def stop(self) -> None:
        try:
            await self._running.stop()
        finally:
            await self._http.close()


class BuildServers:
    """The `Servers` of a build."""

    def __init__(self, clock: Clock, *, name: str) -> None:
        """`name` is what requests carry in their `model` field."""
        self._clock = clock
        self._name = name

    async def start(self, launch: LaunchCommand, log: Path) -> BuildServer:
        engine = engine_of(launch, version=NAME, digest="", model=self._name)
        http = Http()
        try:
            begun = self._clock.monotonic()
            running = await self._processes(http, log).start(engine, log_file=log)
            return BuildServer(running, http, self._clock.monotonic() - begun)
        except BaseException:
            await http.close()
            raise

    def _processes(self, http: Http, log: Path) -> EngineProcesses:
        return EngineProcesses(
            NAME, logs=log.parent, http=http, admission=Admission(machine.measure), clock=self._clock
        )


@dataclass(frozen=True)
class AskedGoldenSet:
    """A `GoldenSet` of a build: asked and scored as in the offline stage."""

    golden: tuple[GoldenPrompt, ...]
    scorer: Scorer
    """For prompts that name none themselves."""
    chat: Chat
    embedder: Embedder | None = None
    """For prompts scored by meaning."""
    likelihood: LogLikelihood | None = None
    """For those scored by log-likelihood."""

    @property
    def digest(self) -> str:
        """Of the prompts, and of how their answers are scored."""
        lines = [self.scorer, *(entry.model_dump_json() for entry in self.golden)]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    async def scores(self, url: str, model: str) -> Mapping[str, float]:
        async def answer(entry: GoldenPrompt) -> str:
            return (await self.chat.ask(url, model, entry.prompt, max_tokens=entry.max_tokens)).text

        async def mean_logprob(entry: GoldenPrompt) -> float:
            assert self.likelihood is not None, "a prompt is scored by log-likelihood, and nobody asks for it"
            return await self.likelihood.mean_logprob(url, model, entry.prompt, entry.expected)

        found = await ask_golden(
            self.golden, self.scorer, answer=answer, mean_logprob=mean_logprob, embedder=self.embedder
        )
        return found.by_prompt


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
    golden: GoldenTerms | None = None
    """What quantization may cost on the golden set; None asks it nothing."""
    allowed: SpecTrust = field(default_factory=SpecTrust)
    """What records of engines may say, as specs may."""
    shares_gpus: bool = False
    """Whether an engine leaves room on its GPUs for others, as in a fleet of this machine."""

    def folder(self, version: ModelVersion) -> Path:
        """Where the version's files are, once prepared."""
        return self._workdir(version) / "model"

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
        await call_in_thread(self.registry.download, version, self._workdir(version))
        source = await call_in_thread(self.registry.source, version)
        order = await call_in_thread(self._order, version, source)
        return order, await self.builder.build(order, progress)

    def _order(self, version: ModelVersion, source: str) -> BuildRequest:
        folder = self.folder(version)
        files = read_version(folder)
        wanted = sharing_gpus(self.settings) if self.shares_gpus else self.settings
        require_servable(problems_of(files, wanted), version.uri)
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
            share=share_of(files, self.settings) if self.shares_gpus else None,
            golden=self.golden,
        )

    def _workdir(self, version: ModelVersion) -> Path:
        return self.state.engines / version.digest
