"""What a delivery is opened with, and the adapters that it gets for its length."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from gates.adapters.records import RecordSource
from gates.analyses.burn_rate import EventSource
from gates.analyses.queries.asked import QuerySource
from gates.ports import EvidenceSource
from pipelines.adapters.chat import OpenAIChat
from pipelines.adapters.metrics_server import MetricsServer
from pipelines.authority.engine_images import TrustedImages
from pipelines.events.writer import WriterLimits, limits_of
from pipelines.model import Plan
from pipelines.ports import (
    Chat,
    DeliveryLedger,
    EngineProvider,
    Fleet,
    ScratchEngines,
    Tokenizer,
    UserSamples,
    VersionRegistry,
)
from pipelines.spec.delivery import Delivery
from pipelines.spec.trust import ApproversSpec, Trusted
from pipelines.state import StateFolder
from pipelines.statements import Identities, Prover
from rollouts.cluster.carrier import Carrier
from tidegate.core.clock import Clock, SystemClock


@dataclass(frozen=True)
class DeliveryInputs:
    """What the person asked for, as far as it matters here."""

    spec: Delivery
    folder: Path
    state: StateFolder
    registry: VersionRegistry
    users: bool
    """Play users meanwhile."""
    keep: bool
    """Leave up a fleet that is started for this."""
    identities: Identities
    """Who can prove who they are."""
    asker: Prover | None = None
    """Proves who asks for this delivery; None where nobody does, or another process has."""
    approvers: ApproversSpec = field(default_factory=ApproversSpec)
    """Whom the trust file names."""
    images: Mapping[str, str] = field(default_factory=dict)
    """Engine images that the plan settled, by the version's number."""
    trusted: TrustedImages | None = None
    """What an engine image has to be."""
    carrier: Carrier | None = None
    """Who carries the delivery."""


def file_tokenizer() -> Tokenizer:
    """What reads the chat template of a version's files; it loads what that takes."""
    from engine_images.adapters.model_version import FileTokenizer

    return FileTokenizer()


@dataclass(frozen=True)
class Backends:
    """The adapters behind a delivery's ports."""

    fleets: Mapping[str, Fleet]
    """By region."""
    engines: EngineProvider
    proxy: EvidenceSource
    events: EventSource | None = None
    """Who answers the queries of SLOs; None where nobody does."""
    scratch: ScratchEngines | None = None
    """Who starts engines that serve nobody; None where the fleet does not."""
    queries: QuerySource | None = None
    """Who reads the counters of ratio gates; None where nobody does."""
    users: RecordSource | None = None
    """What the users that are played write down."""
    samples: UserSamples | None = None
    """What engines keep of users' requests; None where the spec asks for nothing."""
    chat: Chat = field(default_factory=OpenAIChat)
    tokenizer: Tokenizer = field(default_factory=file_tokenizer)
    clock: Clock = field(default_factory=SystemClock)


BackendsOpener = Callable[[DeliveryInputs, MetricsServer | None], AbstractAsyncContextManager[Backends]]
"""Opens the backends of a delivery for its length; `open_backends` opens those that its spec describes."""


@dataclass(frozen=True)
class AttachedDelivery:
    """What the ledger and the files next to it say."""

    ledger: DeliveryLedger
    plan: Plan
    spec: Delivery
    spec_path: Path
    spec_file: str
    state: StateFolder
    tracking_uri: str | None
    trusted: Trusted
    patience: timedelta
    """Until the next process must be heard of; zero when this one carries the delivery to its end."""
    key: str = ""
    """That it was opened, or carried on, with; empty for none."""

    @property
    def limits(self) -> WriterLimits:
        """A process of many may lose its disk with its end: what it could not write it must wait for."""
        usual = limits_of(self.spec.patience)
        return replace(usual, end=usual.patience) if self.patience else usual

    @property
    def folder(self) -> Path:
        """What is the delivery's own on this machine."""
        return self.state.delivery(self.ledger.delivery)
