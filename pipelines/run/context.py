"""What a stage is given: the plan, and the adapters that the command has built."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gates.analyses.command import CommandGate, Question, Reply
from gates.analyses.queries import QuerySource
from gates.evidence.request_record import RequestRecord
from gates.judge.judge import Judge
from gates.model import ArmKey
from gates.ports import EvidenceSource, LanguageDetector
from pipelines.events.artifacts import Trials
from pipelines.events.journal import Journal
from pipelines.load import LoadOrder, LoadRequest
from pipelines.model import Plan, PlanStep, StageName
from pipelines.ports import Chat, EngineProvider, Fleet, Tokenizer, UserSamples
from pipelines.repository import GitRemote
from pipelines.spec.delivery import Delivery
from pipelines.statements import Prover
from rollouts.model import Engine
from tidegate.core.clock import Clock

if TYPE_CHECKING:
    from pipelines.authority.identities import ProvenIdentities
    from registry.versions import MlflowRegistry

AskCommand = Callable[[CommandGate, Question, float], Awaitable[Reply]]
"""Runs a gate's command within so many seconds; raises NotAnswered where there is no answer that can be read."""


BringLoad = Callable[[str, LoadOrder, Sequence[LoadRequest], int], Awaitable[Sequence[RequestRecord]]]
"""Brings a block of load to an engine, by so many processes: every request of it, once all have ended.

The first is the name of its files; raises OutsideError.
"""


@dataclass(frozen=True)
class Readers:
    """Who reads answers for more than their words; each is None when the spec does not ask for it."""

    languages: LanguageDetector | None = None
    judges: Callable[[], AbstractAsyncContextManager[Judge]] | None = None
    """The judge of one comparison, for as long as that lasts."""


@dataclass(frozen=True, kw_only=True)
class Backends:
    """What a delivery moves and learns from: by its spec, or what a program brings."""

    fleets: Mapping[str, Fleet]
    """By region."""
    engines: EngineProvider
    proxy: EvidenceSource
    """What the proxies and engines count, mirrored requests included."""
    chat: Chat
    tokenizer: Tokenizer
    clock: Clock
    queries: QuerySource | None = None
    """Who answers the queries of gates, and those of an SLO."""
    users: EvidenceSource | None = None
    """What the users themselves saw; None when no load writes it down."""
    samples: UserSamples | None = None
    """Samples of users' requests; None where the spec asks for none."""


@dataclass(frozen=True, kw_only=True)
class Context(Backends):
    """One delivery's surroundings. Stages keep nothing in it: whatever they need later is in the world."""

    spec: Delivery
    plan: Plan
    stages: Stages
    """`pipelines.run.stages.STAGES`, unless somebody tries the order alone."""
    folder: Path
    """Where the spec lies; relative paths in it start here."""
    journal: Journal
    registry: MlflowRegistry
    trials: Trials
    identities: ProvenIdentities
    """Who can prove who they are, for approvals and the like."""
    readers: Readers = Readers()
    own: Path
    """The delivery's own folder on this machine; what gates' commands and loads said is written there."""
    commands: AskCommand | None = None
    """None where nothing runs the commands of gates."""
    loads: BringLoad | None = None
    """None where nobody can bring load of our own."""
    git: GitRemote | None = None
    """The repository that says what regions serve; None where the spec names none."""
    asker: Prover | None = None
    """Proves who asks for this delivery; None where nobody does."""
    spec_file: str | None = None
    """Where the spec lies among the delivery's kept files; None when it was not kept."""
    impatient: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a person has waited enough for regions that do not let themselves be rolled back."""

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
