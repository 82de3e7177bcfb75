"""A whole delivery in memory: two regions, a champion, a challenger, and a story to look at afterwards.

In one process, or each step in surroundings of its own, as fresh processes on other machines would have.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from fakes.delivery.identities import FakeIdentities
from fakes.delivery.ledger import FakeLedger, OffLoop
from fakes.delivery.loads import FakeLoads

from gates.evidence.batch import Batch
from gates.model import ArmKey
from pipelines.events.artifacts import Trials, bring_evidence, vouched
from pipelines.events.journal import Journal
from pipelines.events.payloads import Opening
from pipelines.events.state import DeliveryState, plan_of, state_of
from pipelines.events.writer import WriterLimits
from pipelines.model import Plan, Result
from pipelines.plan.planner import make_plan
from pipelines.ports import EngineProvider, Listener
from pipelines.repository import GitRemote
from pipelines.run.context import Context
from pipelines.run.engine import deliver
from pipelines.run.resume import StepResult, close, resume, take_step
from pipelines.run.stages import STAGES
from pipelines.spec.delivery import Delivery
from pipelines.spec.policy import golden_set
from pipelines.statements import Prover
from registry.model import SERVING, EngineRecord, Event, ModelVersion, ServingAliases
from rollouts.model import Engine
from tidegate.core.errors import OutsideError
from tidegate.core.spec import parse_spec
from tidegate.testing import START, FakeChat, FakeClock, FakeEvidence, FakeFleet, FakeTokenizer, an_engine, digest_of

CHAMPION, CHALLENGER = "1", "2"
CHAMPION_URL, CHALLENGER_URL = "http://127.0.0.1:8001", "http://127.0.0.1:8002"
"""Every fake region numbers its engines alike, and the champion always comes first."""

SPEC = """
apiVersion: tidegate/v1
kind: Delivery
metadata: {name: support-llm}
model: {name: support-llm, from: challenger, to: champion}
engine: {vllm: {version: 0.32.0}, compile: {mode: none}}
gates:
  latency: {max_increase: 20%, min_requests: 20}
  errors: {max_increase: 1pp, min_requests: 20}
  quality: {max_drop: 0.1, min_prompts: 10}
  agreement: {min_similarity: 0.6, min_pairs: 10}
stages:
  - offline: {dataset: golden.jsonl}
  - shadow: {at_least: 10s, within: 2m}
  - canary: {weights: [10, 50], within: 5m}
regions: {waves: [[eu-west-1], [us-east-1]], bake: 10s}
traffic: {requests_per_second: 200}
"""

SIDE_BY_SIDE = {
    "regions": "regions: {waves: [[eu-west-1, us-east-1]], bake: 10s}",
    "shadow": "  - shadow: {at_least: 10s, within: 20m}",
}
"""Both regions in one wave. Fake time passes for both at once, so that each has only a part of it."""

GOLDEN = "\n".join(f'{{"prompt": "What is {n} plus {n}?", "expected": "{2 * n}"}}' for n in range(1, 13))


def a_spec(**replaced: str) -> Delivery:
    """The spec above, with whole lines replaced by their first word: `gates_quality="..."`."""
    lines = SPEC.splitlines()
    for key, line in replaced.items():
        at = next(index for index, text in enumerate(lines) if text.strip().removeprefix("- ").startswith(f"{key}:"))
        lines[at] = line
    return parse_spec("\n".join(lines), Delivery, file="delivery.yaml")


def a_version(number: str) -> ModelVersion:
    """A registered version without files."""
    return ModelVersion(name="support-llm", version=number, digest=digest_of(number), files={}, size_bytes=0)


_PLANS: dict[tuple[str, int], Plan] = {}


def planned(spec: Delivery, prompts: int, version: str = CHALLENGER, champion: str = CHAMPION) -> Plan:
    """As `make_plan`, once for all specs that are alike: forecasts take longer than a story and know no version."""
    alike = spec.model_dump_json(), prompts
    versions = {"version": a_version(version), "champion": a_version(champion)}
    if alike not in _PLANS:
        _PLANS[alike] = make_plan(spec, **versions, prompts=prompts)
    return _PLANS[alike].model_copy(update=versions)


def right(prompt: str) -> str:
    """What a good version answers to the golden set, and to anything else."""
    words = prompt.removesuffix("?").split()
    return f"It is {2 * int(words[2])}" if words[:2] == ["What", "is"] else "red orange yellow"


class FakeDownloads:
    """`Engines` of versions that are all here already."""

    async def prepare(
        self, version: ModelVersion, progress: Callable[[str], None], record: EngineRecord | None = None
    ) -> Engine:
        return an_engine(record.name if record else version.version, digest=version.digest)

    def folder(self, version: ModelVersion) -> Path:
        return Path("/nowhere")


class AliasBook:
    """The part of a `Registry` that a running delivery writes to."""

    def __init__(self) -> None:
        self.champion = CHAMPION
        self.names: list[ServingAliases] = []
        """By which it was told of aliases, each time."""
        self.marks: dict[str, str] = {}
        self.gone = False
        self.breaks_off = False
        """Whether it goes away in the middle of a promotion."""

    def download(self, version: ModelVersion, target: Path) -> Path:
        return target

    def tags(self, version: ModelVersion) -> dict[str, str]:
        return dict(self.marks)

    def source(self, version: ModelVersion) -> str:
        return ""

    def promote(self, version: ModelVersion, names: ServingAliases = SERVING) -> None:
        self._refuse_when_gone()
        self.names.append(names)
        self.champion = version.version
        if self.breaks_off:
            raise OutsideError("the registry went away")

    def reinstate(self, version: ModelVersion, names: ServingAliases = SERVING) -> None:
        self._refuse_when_gone()
        self.names.append(names)
        self.champion = version.version

    def mark(self, version: ModelVersion, tags: Any) -> None:
        self._refuse_when_gone()
        self.marks.update(tags)

    def _refuse_when_gone(self) -> None:
        if self.gone:
            raise OutsideError("the registry is not there")


class NewEvidence(FakeEvidence):
    """Users came a minute before the delivery: it has a past to learn from, and not half an hour for each trial."""

    def batch(self, stable: ArmKey, canary: ArmKey, since: datetime, until: datetime) -> Batch:
        came = START - timedelta(minutes=1)
        return super().batch(stable, canary, max(since, came), max(until, came))


class Recorder:
    """A `Listener` that keeps everything, and may do something when a step says something."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.reactions: dict[tuple[str, str], Any] = {}

    def on_event(self, event: Event) -> None:
        self.events.append(event)
        reaction = self.reactions.pop((event.step, event.kind), None)
        if reaction is not None:
            reaction()


class World:
    """Everything a delivery touches. `given` and `when` are plain attributes; `deliver` runs it."""

    def __init__(self, folder: Path, spec: Delivery | None = None, *, clock: FakeClock | None = None) -> None:
        (folder / "golden.jsonl").write_text(GOLDEN)
        self.spec = spec or a_spec()
        self.clock = clock or FakeClock()
        self.fleets = {name: FakeFleet(name, clock=self.clock) for name in self.spec.regions.names}
        self.registry = AliasBook()
        self.ledger = FakeLedger(self.clock)
        self.recorder = Recorder()
        self.chat = FakeChat({CHAMPION_URL: right, CHALLENGER_URL: right})
        self.identities = FakeIdentities()
        self.asker: Prover | None = None
        self.git: GitRemote | None = None
        self.evidence = NewEvidence()
        self.evidence.serves("stable", CHAMPION)
        self.evidence.serves("stable", CHALLENGER)
        self.evidence.serves("shadow", CHALLENGER)
        self.evidence.serves("canary", CHALLENGER)
        speeds = dict.fromkeys((CHAMPION_URL, CHALLENGER_URL), 1000.0)
        self.loads = FakeLoads(folder / "load", self.clock, speeds)
        self.limits = WriterLimits()
        self.engines: EngineProvider = FakeDownloads()
        self.folder = self.disk = folder
        """Of the spec, and of what the delivery writes."""

    @property
    def plan(self) -> Plan:
        prompts = len(golden_set(self.spec, self.folder))
        return planned(self.spec, prompts)

    def context(self, listeners: Sequence[Listener] = ()) -> Context:
        journal = self.journal(listeners)
        return Context(
            spec=self.spec,
            plan=self.plan,
            stages=STAGES,
            folder=self.folder,
            clock=self.clock,
            journal=journal,
            registry=OffLoop(self.registry),
            engines=self.engines,
            fleets=self.fleets,
            chat=self.chat,
            tokenizer=FakeTokenizer(),
            proxy=self.evidence,
            trials=Trials(self.disk, journal),
            identities=self.identities,
            own=self.disk,
            loads=self.loads.block if self.loads else None,
            git=self.git,
            asker=self.asker,
        )

    def journal(self, listeners: Sequence[Listener] = ()) -> Journal:
        """As patient as `limits` says; store and registry refuse to be asked by the event loop."""
        registry = OffLoop(self.registry)
        everybody = [self.recorder, *listeners]
        return Journal(OffLoop(self.ledger), self.clock, everybody, registry=registry, limits=self.limits)

    async def deliver(self) -> Result:
        return await deliver(self.context())

    def answers(self, asked: str, word: str, message: str) -> None:
        """Write into the ledger from outside, as a command does that a person types."""
        by, _, reason = message.partition(": ")
        self.appends(Event(at=self.now(), step=asked, kind=word, message=message, data={"by": by, "reason": reason}))

    def appends(self, event: Event) -> None:
        """Somebody outside writes an event into the ledger."""
        self.ledger.append(event)
        self.recorder.on_event(event)

    def when(self, step: str, kind: str, reaction: Any) -> None:
        """Call `reaction` the first time that step says that kind of thing."""
        self.recorder.reactions[step, kind] = reaction

    @property
    def story(self) -> DeliveryState:
        return state_of(self.recorder.events)

    def said(self, kind: str) -> list[str]:
        """The steps that said it, in order."""
        return [event.step for event in self.recorder.events if event.kind == kind]

    def stable_versions(self) -> dict[str, str | None]:
        """What users of each region are on."""
        return {name: fleet.proxy.routes.stable for name, fleet in self.fleets.items()}

    def now(self) -> datetime:
        return self.clock.now()


class Attached:
    """The files that a delivery's ledger keeps."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files

    def fetch(self, delivery: str, folder: str, into: Path, named: Collection[str] | None = None) -> Sequence[Path]:
        found = []
        for place, content in sorted(self._files.items()):
            if Path(folder) in Path(place).parents:
                found.append(into / place)
                if named is None or place in named:
                    (into / place).parent.mkdir(parents=True, exist_ok=True)
                    (into / place).write_bytes(content)
        return found


class Steps:
    """Processes that share nothing but the ledger and the world."""

    def __init__(self, world: World, disks: Path) -> None:
        self.world = world
        self._disks = (disks / str(number) for number in itertools.count(1))
        world.appends(Opening.of_plan(world.plan, "delivery.yaml").event(world.now(), "delivery"))

    @property
    def ids(self) -> list[str]:
        """Every step of the plan, as the ledger has it."""
        return [step.id for step in plan_of(self.world.ledger.recorded()).steps]

    def process(self) -> Context:
        """What a process has that has just begun, on a machine where nothing of the delivery is."""
        disk, ledger = next(self._disks), self.world.ledger
        disk.mkdir()
        events = ledger.recorded()
        kept: Any = Attached(ledger.files)
        bring_evidence(kept, ledger.delivery, disk, vouched(events))
        world, registry = self.world, OffLoop(self.world.registry)
        journal = Journal(OffLoop(ledger), world.clock, [world.recorder], registry=registry, limits=world.limits)
        return replace(
            self.world.context(),
            plan=plan_of(events),
            journal=journal,
            trials=Trials(disk, journal),
        )

    async def take(self, step: str) -> StepResult:
        """One step, in a process of its own."""
        return await take_step(self.process(), step)

    async def until(self, last: str) -> list[StepResult]:
        """Every step up to that one, or up to the first that is not done."""
        taken: list[StepResult] = []
        for step in self.ids[: self.ids.index(last) + 1]:
            taken.append(await self.take(step))
            if not taken[-1].done:
                break
        return taken

    async def resume(self) -> Result:
        """What a person says after all of it was lost."""
        return await resume(self.process())

    async def close(self) -> Result:
        """What an exit handler does."""
        return await close(self.process())

    async def deliver(self) -> Result:
        """All of them, then the exit handler."""
        await self.until(self.ids[-1])
        return await self.close()
