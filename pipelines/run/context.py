"""What a stage is given: the plan, and the adapters that the command has built."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from gates.analyses.burn_rate import EventSource
from gates.analyses.command import CommandGate, Question, Reply
from gates.analyses.drift.spec import DriftReference
from gates.analyses.queries.asked import QuerySource
from gates.evidence.batch import Batch
from gates.judge.answer_judge import AnswerJudge
from gates.judge.pair_judge import PairJudge
from gates.model import ArmKey, NoData, Verdict
from gates.ports import Embedder, EvidenceSource, LanguageDetector, LogLikelihood, UserRequests
from gates.sequential_test import AnalysisPlan
from pipelines.events.journal import Journal
from pipelines.model import Plan, PlanStep, StageName
from pipelines.ports import (
    Chat,
    EngineProvider,
    Fleet,
    LoadGenerators,
    Registry,
    ScratchEngines,
    Tokenizer,
    UserSamples,
)
from pipelines.repository import GitAccess
from pipelines.spec.delivery import Delivery
from pipelines.statements import Identities, Prover
from rollouts.model import Engine
from tidegate.core.clock import Clock


@dataclass(frozen=True)
class Readers:
    """Who reads answers for more than their words; each is None when the spec does not ask for it."""

    embedder: Embedder | None = None
    languages: LanguageDetector | None = None
    likelihood: LogLikelihood | None = None
    judges: Callable[[], Awaitable[PairJudge]] | None = None
    """Makes the judge of one comparison, its control begun."""
    answer_judges: Callable[[], Awaitable[AnswerJudge]] | None = None
    """The same of answers that are scored each by itself."""


@dataclass(frozen=True)
class Commands:
    """What runs the commands of gates."""

    ask: Callable[[CommandGate, Question, float], Awaitable[Reply]]
    """Within so many seconds; raises NotAnswered when there is no answer, or none that can be read."""
    folder: Path
    """Where what they said is kept, until the delivery's ledger has it."""


class Trial(Protocol):
    """One sequential test, written down before it has any effect."""

    @property
    def is_new(self) -> bool:
        """Whether it has taken nothing yet."""
        ...

    def take(self, batch: Batch) -> None:
        """Evidence of both arms."""
        ...

    def count_again(self) -> None:
        """What was taken so far is a past to bet on; what verdicts tell and what speaks for the canary begins here."""
        ...

    def verdicts(self, *, deadline_passed: bool) -> Sequence[Verdict]:
        """What every gate says by now."""
        ...


class DeliveryTrials(Protocol):
    """All trials of one delivery, by name: `canary@eu-west-1` is one trial through all its weights."""

    def open(self, name: str, terms: AnalysisPlan, step: str) -> Trial:
        """The trial of that name, for one more step; its terms are those of the first time.

        Raises:
            NotAsPlanned: it was opened before to ask for something else.
        """
        ...

    def reference(self, name: str) -> DriftReference | NoData | None:
        """The bins that were frozen when that trial was opened; None when it was not."""
        ...

    def written(self, step: str) -> Mapping[str, tuple[int, str]]:
        """How far the transcripts of a step's trials are written: bytes, and their SHA-256."""
        ...

    def keep(self, name: str) -> None:
        """Put the transcript so far next to the ledger's events."""
        ...


@dataclass(frozen=True)
class Backends:
    """What a delivery moves and learns from: by its spec, or what a program brings."""

    fleets: Mapping[str, Fleet]
    """By region."""
    engines: EngineProvider
    proxy: EvidenceSource
    chat: Chat
    tokenizer: Tokenizer
    clock: Clock
    events: EventSource | None = None
    queries: QuerySource | None = None
    users: EvidenceSource | None = None
    requests: UserRequests | None = None
    samples: UserSamples | None = None
    scratch: ScratchEngines | None = None


@dataclass(frozen=True)
class Context:
    """One delivery's surroundings. Stages keep nothing in it: whatever they need later is in the world."""

    spec: Delivery
    plan: Plan
    stages: Stages
    """`pipelines.run.stages.STAGES`, unless somebody tries the order alone."""
    folder: Path
    """Where the spec lies; relative paths in it start here."""
    clock: Clock
    journal: Journal
    registry: Registry
    engines: EngineProvider
    fleets: Mapping[str, Fleet]
    """By region."""
    chat: Chat
    tokenizer: Tokenizer
    proxy: EvidenceSource
    """What the proxies and engines count, mirrored requests included."""
    trials: DeliveryTrials
    identities: Identities
    """Who can prove who they are, for approvals and the like."""
    users: EvidenceSource | None = None
    """What the users themselves saw; None when no load writes it down."""
    requests: UserRequests | None = None
    """Each request of those users, for what is asked of single requests, such as drift."""
    events: EventSource | None = None
    """Who answers the queries of an SLO."""
    queries: QuerySource | None = None
    """Who reads the counters of ratio gates."""
    samples: UserSamples | None = None
    """Samples of users' requests; None where the spec asks for none."""
    readers: Readers = Readers()
    commands: Commands | None = None
    """What runs the commands of gates; None where nothing does."""
    loads: LoadGenerators | None = None
    """Who brings load of our own; None where nobody can."""
    scratch: ScratchEngines | None = None
    """Who starts engines that serve nobody; None where the fleet does not."""
    git: GitAccess | None = None
    """The repository that says what regions serve; None where the spec names none."""
    asker: Prover | None = None
    """Proves who asks for this delivery; None where nobody does."""
    spec_file: str | None = None
    """Where the spec lies among the delivery's kept files; None when it was not kept."""
    impatient: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a person has waited enough for regions that do not let themselves be taken back."""

    async def prepare(self, step: str) -> Engine:
        """What is delivered, ready to serve; `step` is told of it."""
        return await self.engines.prepare(self.plan.version, partial(self.journal.note, step), self.plan.engine)

    async def prepare_champion(self, step: str) -> Engine:
        """What is in production, by the engine that was recorded for it; by the spec's where none was."""
        plan = self.plan
        return await self.engines.prepare(plan.champion, partial(self.journal.note, step), plan.champion_engine)

    def fleet(self, step: PlanStep) -> Fleet:
        """The fleet of the step's region."""
        assert step.region is not None, f"{step.id} has no region"
        return self.fleets[step.region]

    def arms(self, step: PlanStep, *, canary_role: str = "canary") -> tuple[ArmKey, ArmKey]:
        """The keys of stable and canary in the step's region, as metrics know them."""
        assert step.region is not None, f"{step.id} has no region"
        stable = ArmKey(region=step.region, role="stable", version=self.plan.in_production)
        return stable, ArmKey(region=step.region, role=canary_role, version=self.plan.on_trial)


Stage = Callable[[Context, PlanStep], Awaitable[None]]
"""Does one step; returns when it is done, raises `Stopped` when the delivery must not go on."""
Stages = Mapping[StageName, Stage]
"""How each kind of step is done."""
