"""What a delivery needs from the world. Adapters implement these; nothing above knows which."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol, runtime_checkable

from gates.answers.samples import TakenSamples
from gates.model import EngineReply
from registry.model import EngineRecord, ModelVersion
from registry.model import Event as Event  # noqa: PLC0414  # re-exported: a part of the port Ledger
from rollouts.model import CarrierHeartbeat, Engine, EngineSet, ForeignObject, RegionState


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


@runtime_checkable
class SharedPlace(Protocol):
    """A fleet in a place where others have objects too, such as a namespace of a cluster."""

    async def foreign_objects(self) -> tuple[ForeignObject, ...]:
        """Objects of others where this delivery's would be."""


@runtime_checkable
class CarriedFleet(Protocol):
    """A fleet that knows who carries its trial."""

    async def carried(self) -> CarrierHeartbeat | None:
        """None when nobody does."""


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


class Listener(Protocol):
    """Sees every event: of those that are waited for, the moment after they are durable."""

    def on_event(self, event: Event) -> None:
        """Take note."""


class Chat(Protocol):
    """Asks one engine directly, at temperature 0."""

    async def ask(self, url: str, model: str, prompt: str, *, max_tokens: int) -> tuple[EngineReply, tuple[int, ...]]:
        """Stream one chat completion: what the engine said and how fast, and its tokens."""

    async def tokenize(self, url: str, model: str, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The tokens that the engine itself makes of a conversation, generation prompt included."""


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
