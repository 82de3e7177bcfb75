"""What a delivery needs from the world. Adapters implement these; nothing above knows which."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol, runtime_checkable

from gates.answers.samples import TakenSamples
from gates.evidence.request_record import RequestRecord
from pipelines.load.model import LoadOrder, LoadRequest
from registry.model import (
    SERVING,
    AdoptionProgress,
    DeliverySummary,
    EngineRecord,
    ModelVersion,
    ServingAliases,
)
from registry.model import Event as Event  # noqa: PLC0414  # re-exported: a part of the port Ledger
from rollouts.model import Engine, EngineSet, RegionState
from tidegate.core.model import Value


class Fleet(Protocol):
    """One region. Every call states an operation, returns when it holds, and may be repeated after a crash."""

    region: str

    async def deploy(self, engine: Engine) -> RegionState:
        """Bring the engine up and ready at weight 0; in an empty region it becomes stable at once."""

    async def mirror(self, percent: int) -> RegionState:
        """Copy that share of user traffic to the canary; its answers reach no user."""

    async def shift(self, weight: int) -> RegionState:
        """Give that percent of user traffic to the canary."""

    async def promote(self) -> RegionState:
        """The canary becomes stable and takes all traffic; the old stable stays warm as previous."""

    async def rollback(self, to: str | None) -> RegionState:
        """All user traffic to version `to`, now; then the other version drains and stops. None is the stable one:
        whatever is on trial goes, and nothing else changes.
        """

    async def observe(self) -> RegionState:
        """What the region is doing."""


@runtime_checkable
class RemembersWayBack(Protocol):
    """A fleet whose region itself says where users go back to as long as a delivery is open there."""

    async def way_back(self) -> str:
        """The version that served before the delivery; empty where none is open."""

    async def settle(self) -> None:
        """The delivery is over, and what serves stays."""

    async def restart(self, version: str) -> RegionState:
        """All users to a version of before that is no longer warm, as the region itself keeps it."""


class Registry(Protocol):
    """Where model versions live."""

    def download(self, version: ModelVersion, target: Path) -> Path:
        """The version's files below `target`, each proven against its digest; returns their folder."""

    def source(self, version: ModelVersion) -> str:
        """The addresses below which a plain GET brings each of the version's files; empty when there is none."""

    def promote(self, version: ModelVersion, names: ServingAliases = SERVING) -> None:
        """Champion becomes previous, this version champion, challenger goes."""

    def reinstate(self, version: ModelVersion, names: ServingAliases = SERVING) -> None:
        """Make the version champion again; previous is the one before it, where that is known."""

    def mark(self, version: ModelVersion, tags: Mapping[str, str]) -> None:
        """Write tags on a version, such as why it was taken back."""

    def tags(self, version: ModelVersion) -> Mapping[str, str]:
        """What is written on a version now, by us and by others; `registry.conventions` has our names."""


class VersionRegistry(Registry, Protocol):
    """The same, asked which versions there are."""

    def resolve(self, name: str, reference: str) -> ModelVersion:
        """The version behind an alias or a number, once its files have digests."""

    def look_up(self, name: str, reference: str) -> ModelVersion:
        """The same as its tags say it: without files, and without a digest where nobody adopted it."""

    def preview(self, name: str, reference: str) -> ModelVersion:
        """The same, and without digests where the files have none; nothing is written."""

    def adopt(self, name: str, reference: str, *, progress: AdoptionProgress) -> ModelVersion:
        """The same, once this has noted the digests of files that had none."""

    def location(self, version: ModelVersion) -> str:
        """Where the version's files are kept."""


class Ledger(Protocol):
    """The append-only record of one delivery."""

    delivery: str
    """The delivery's id."""

    def append(self, event: Event) -> None:
        """Write the event before this returns."""

    def beat(self) -> None:
        """Say that the one who carries the delivery lives."""

    def recorded(self) -> Sequence[Event]:
        """Everything that is written by now, by whomever, oldest first."""

    def measure(self, numbers: Mapping[str, float], *, at: datetime) -> None:
        """Keep numbers as time series besides the events."""

    def attach(self, path: Path, *, folder: str = "") -> None:
        """Keep a file, such as the report, in a folder of the delivery's artifacts."""

    def close(self, outcome: str, reason: str) -> None:
        """The delivery is over: `delivered`, `rolled-back`, `inconclusive`, `interrupted` or `failed`."""


class DeliveryLedger(Ledger, Protocol):
    """The same, as the process holds it that carries the delivery."""

    over: frozenset[str]
    """Marks of those that this process replaced, or found dead."""

    @property
    def owner(self) -> str:
        """The mark of the one who carries the delivery."""

    @property
    def known(self) -> Sequence[Event]:
        """What was written when this process last looked. Asks nobody."""

    @property
    def heads(self) -> tuple[str, ...]:
        """The hashes of the last events that this process knows of. Asks nobody."""


class DeliveryList(Protocol):
    """The deliveries that were, to look at, no matter who started them. Every call may block."""

    def deliveries(self, name: str, *, last: int | None = None) -> Sequence[DeliverySummary]:
        """Those of a model, newest first."""

    def is_alive(self, delivery: DeliverySummary) -> bool:
        """Whether it has not ended and shows signs of life."""

    def events(self, delivery: str) -> Sequence[Event]:
        """What its ledger holds, oldest first."""


class DeliveryArtifacts(Protocol):
    """Where the files of deliveries are kept."""

    def fetch(self, delivery: str, folder: str, into: Path, named: Collection[str] | None = None) -> Sequence[Path]:
        """Where the files below one folder of what was kept with it would be; those `named` are copied there."""


class DeliveryHistory(DeliveryList, DeliveryArtifacts, Protocol):
    """The same, each by its id and with its files."""

    def summary(self, delivery: str) -> DeliverySummary:
        """One of them; raises UnknownDelivery."""


class Deliveries(DeliveryHistory, Protocol):
    """The same, to begin one or to take part in it."""

    def whole_id(self, given: str) -> str:
        """The id of the one delivery whose id begins with it; raises UnknownDelivery, or UsageError for several."""

    def open_delivery(
        self,
        version: ModelVersion,
        champion: ModelVersion | None,
        *,
        spec_digest: str,
        patience: timedelta = timedelta(0),
        key: str | None = None,
        engines: tuple[str, str] | None = None,
    ) -> DeliveryLedger:
        """Begin the only delivery of the model; one that the same `key` has opened is joined instead."""

    def join(self, delivery: str, *, carries: bool = True) -> DeliveryLedger:
        """The ledger of one that another process opened; `carries` when what is written is a sign of its life."""

    def take_over(self, delivery: str, *, patience: timedelta = timedelta(0), key: str | None = None) -> DeliveryLedger:
        """Carry it on; who carried it before is refused from now on."""


class Listener(Protocol):
    """Sees every event: of those that are waited for, the moment after they are durable."""

    def on_event(self, event: Event) -> None:
        """Take note."""


class ChatAnswer(Value):
    """What an engine said to one prompt, and how fast."""

    text: str
    tokens: tuple[int, ...]
    finish_reason: str
    ttft_seconds: float
    duration_seconds: float


class Chat(Protocol):
    """Asks one engine directly, at temperature 0."""

    async def ask(self, url: str, model: str, prompt: str, *, max_tokens: int) -> ChatAnswer:
        """Stream one chat completion."""

    async def tokenize(self, url: str, model: str, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The tokens that the engine itself makes of a conversation, generation prompt included."""


class LoadGenerator(Protocol):
    """Brings load to engines, a block at a time."""

    async def block(self, order: LoadOrder) -> Sequence[RequestRecord]:
        """Bring one; returns every request of it, once all have ended.

        Raises:
            OutsideError: what generates the load is gone, or stuck.
        """


class LoadGenerators(Protocol):
    """Who makes generators of load, and keeps what they met."""

    @property
    def folder(self) -> Path:
        """Of this machine; results are kept there too."""

    def open(
        self, name: str, requests: Sequence[LoadRequest], *, processes: int
    ) -> AbstractAsyncContextManager[LoadGenerator]:
        """One that sends these requests, for the length of the context; `name` is that of its files."""


class ScratchEngines(Protocol):
    """Who starts engines that serve nobody."""

    def start(self, region: str, engine: Engine) -> AbstractAsyncContextManager[EngineSet]:
        """A copy of that engine, ready, for the length of the context.

        Raises:
            FleetError: it did not start, or there is no room for it.
        """


class Tokenizer(Protocol):
    """What the registered files say a conversation's tokens are, for comparison with the engine's own."""

    def encode(self, folder: Path, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Render the chat template in `folder` and tokenize the result."""


class UserSamples(Protocol):
    """Samples of users' requests, which engines keep while they are asked to."""

    async def require(self, region: str, version: str) -> None:
        """Be sure that the engines of a version could keep some, before anything depends on it.

        Raises:
            Refused: they cannot.
        """

    async def keep(self, region: str, shares: Mapping[str, float]) -> None:
        """Have the engines of a region keep such shares (0 to 1) of requests, by version; the same until `end`.

        It is repeated every few seconds, because engines stop when nobody asks.
        """

    async def take(self, region: str, engine: EngineSet) -> TakenSamples:
        """What an arm has kept since the last time; it is forgotten there.

        Raises:
            OutsideError: no engine of it is reached, or none keeps anything.
        """

    async def end(self, region: str) -> None:
        """Have nothing kept any more, and what is kept forgotten."""


class EngineProvider(Protocol):
    """Model versions made ready to serve: as commands of this machine, or as images for clusters."""

    async def prepare(
        self, version: ModelVersion, progress: Callable[[str], None], record: EngineRecord | None = None
    ) -> Engine:
        """The engine of a version, its files proven; saying it again is cheap. `progress` hears of long steps.

        With a `record` that very engine, whatever the spec says by now.
        """

    def folder(self, version: ModelVersion) -> Path:
        """Where the version's files are, once prepared."""
