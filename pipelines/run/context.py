"""What a stage is given: the plan, and the adapters that the command has built."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gates.analyses.burn_rate import EventSource
from gates.judge.pair_judge import PairJudge
from gates.model import ArmKey
from gates.ports import Embedder, EvidenceSource, LanguageDetector, LogLikelihood, UserRequests
from pipelines.events.artifacts import Trials
from pipelines.events.journal import Journal
from pipelines.model import Plan, PlanStep
from pipelines.ports import Chat, EngineProvider, Fleet, Registry, Tokenizer
from pipelines.spec.delivery import Delivery
from pipelines.statements import Identities, Prover
from rollouts.errors import NotPossible
from rollouts.model import EngineSet, RegionState
from tidegate.core.clock import Clock


@dataclass(frozen=True)
class Readers:
    """Who reads answers for more than their words; each is None when the spec does not ask for it."""

    embedder: Embedder | None = None
    languages: LanguageDetector | None = None
    likelihood: LogLikelihood | None = None
    judges: Callable[[], Awaitable[PairJudge]] | None = None
    """Makes the judge of one comparison, its control begun."""


@dataclass(frozen=True)
class Context:
    """One delivery's surroundings. Stages keep nothing in it: whatever they need later is in the world."""

    spec: Delivery
    plan: Plan
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
    trials: Trials
    identities: Identities
    """Who can prove who they are, for approvals and the like."""
    users: EvidenceSource | None = None
    """What the users themselves saw; None when no load writes it down."""
    requests: UserRequests | None = None
    """Each request of those users, for what is asked of single requests, such as drift."""
    events: EventSource | None = None
    """Who answers the queries of an SLO."""
    readers: Readers = Readers()
    asker: Prover | None = None
    """Proves who asks for this delivery; None where nobody does."""
    spec_file: str | None = None
    """Where the spec lies among the delivery's kept files; None when it was not kept."""
    spec_path: Path = Path("delivery.yaml")
    """The spec as a person names it who types a command."""
    impatient: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a person has waited enough for regions that do not let themselves be taken back."""

    def fleet(self, step: PlanStep) -> Fleet:
        """The fleet of the step's region."""
        assert step.region is not None, f"{step.id} has no region"
        return self.fleets[step.region]

    def arms(self, step: PlanStep, *, canary_role: str = "canary") -> tuple[ArmKey, ArmKey]:
        """The keys of stable and canary in the step's region, as metrics know them."""
        assert step.region is not None, f"{step.id} has no region"
        stable = ArmKey(region=step.region, role="stable", version=self.plan.champion.version)
        return stable, ArmKey(region=step.region, role=canary_role, version=self.plan.version.version)


def both_arms(state: RegionState) -> tuple[EngineSet, EngineSet]:
    """The stable and the canary of a region where a trial is on.

    Raises:
        NotPossible: when one of them is gone.
    """
    if state.stable is None or state.canary is None:
        missing = "stable" if state.stable is None else "canary"
        raise NotPossible(f"{state.region}: there is no {missing} engine", detail=state.problem)
    return state.stable, state.canary
