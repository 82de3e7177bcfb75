"""The backends of a program that brings its own fleets, instead of those that the spec describes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from gates.analyses.burn_rate import EventSource
from gates.ports import EvidenceSource
from pipelines.adapters.chat import OpenAIChat
from pipelines.adapters.downloaded_engines import DownloadedEngines
from pipelines.adapters.metrics_server import MetricsServer
from pipelines.ports import Chat, EngineProvider, Fleet, Tokenizer
from pipelines.spec.delivery import Delivery
from pipelines.state import StateFolder
from registry.adapters.mlflow_models import MlflowRegistry
from rollouts.cluster.carrier import Carrier
from tidegate.app.wiring.model import Backends, DeliveryInputs, file_tokenizer
from tidegate.core.clock import Clock, SystemClock
from tidegate.core.errors import UsageError


@dataclass(frozen=True)
class OwnBackends:
    """What the program brings, and what it leaves to tidegate."""

    fleets: Mapping[str, Fleet]
    """By region."""
    evidence: EvidenceSource
    engines: EngineProvider | None = None
    """None for versions that are downloaded and proven, and started by the fleet."""
    events: EventSource | None = None
    chat: Chat | None = None
    tokenizer: Tokenizer | None = None
    clock: Clock = field(default_factory=SystemClock)

    def provider(self, spec: Delivery, state: StateFolder, registry: MlflowRegistry) -> EngineProvider:
        """What makes a version ready for the fleets."""
        return self.engines or DownloadedEngines(registry=registry, state=state, name=spec.metadata.name)

    @asynccontextmanager
    async def open(self, inputs: DeliveryInputs, metrics: MetricsServer | None) -> AsyncIterator[Backends]:
        """A `BackendsOpener`; the program closes the fleets itself."""
        del metrics  # Read by the program's own Prometheus, if at all.
        yield Backends(
            fleets=self.fleets,
            engines=self.provider(inputs.spec, inputs.state, inputs.registry),
            proxy=self.evidence,
            events=self.events,
            chat=self.chat or OpenAIChat(),
            tokenizer=self.tokenizer or file_tokenizer(),
            clock=self.clock,
        )

    @asynccontextmanager
    async def standing(
        self, spec: Delivery, state: StateFolder, *, patience: timedelta | None = None, carrier: Carrier | None = None
    ) -> AsyncIterator[Mapping[str, Fleet]]:
        """A `FleetsOpener`: always the same."""
        del spec, state, patience, carrier
        yield self.fleets


def refuse_other_regions(spec: Delivery, fleets: Mapping[str, Fleet]) -> None:
    """Compare the regions of the spec with the fleets.

    Raises:
        UsageError: a region has no fleet.
    """
    missing = [region for region in spec.regions.names if region not in fleets]
    if missing:
        raise UsageError(f"no fleet for region {missing[0]}", hint=f"there are: {', '.join(fleets) or 'none'}")
