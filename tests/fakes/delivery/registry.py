"""A registry in memory, and what a receiver of webhooks needs around it."""

from __future__ import annotations

from collections.abc import Callable

from fakes.delivery.store import MemoryStore

from pipelines.requests import QueuedRequest
from pipelines.triggers.queue import RequestQueue
from registry.model import DeliverySummary, ModelVersion
from registry.versions import MlflowRegistry
from tidegate.core.errors import OutsideError


class FakeRegistry(MlflowRegistry):
    """Over a store in memory, in which somebody may change files."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        super().__init__(self.store)

    def change(self, version: ModelVersion, path: str, content: bytes) -> None:
        """Write another content where the version's file was."""
        self.store.files[f"{self.location(version)}/model/{path}"] = content


class Inbox(RequestQueue):
    """The queue, of which a test sees what nobody asks for any more."""

    @property
    def all(self) -> list[QueuedRequest]:
        """Newest first."""
        rows = self._db.execute("SELECT entry FROM entries ORDER BY number DESC").fetchall()
        return [QueuedRequest.model_validate_json(row[0]) for row in rows]


class FakeMarks:
    """A registry of one model."""

    def __init__(self) -> None:
        self.means: dict[str, str] = {}
        """The version of each alias."""
        self.reachable = True

    def aliases(self, model: str) -> dict[str, str]:
        if not self.reachable:
            raise OutsideError("MLflow store: no answer")
        return self.means


class FakeLedgers:
    """Deliveries by id; those without an end are alive."""

    def __init__(self) -> None:
        self.all: dict[str, DeliverySummary] = {}
        self.listed = 0
        """How often all of them were asked for."""

    def deliveries(self, name: str, *, last: int | None = None) -> list[DeliverySummary]:
        self.listed += last is None
        return sorted(self.all.values(), key=lambda each: each.started, reverse=True)[:last]

    def is_alive(self, delivery: DeliverySummary) -> bool:
        return delivery.ended is None


class FakeStarter:
    """Notes what it is asked to start; `begin` says what comes of it."""

    def __init__(self, begin: Callable[[QueuedRequest], None] = lambda _: None) -> None:
        self.started: list[str] = []
        self.running = True
        self.able = True
        self._begin = begin

    async def start(self, entry: QueuedRequest) -> str:
        if not self.able:
            raise OutsideError("no room")
        self.started.append(entry.request.version)
        self._begin(entry)
        return f"run {len(self.started)}"

    async def runs(self, entry: QueuedRequest) -> bool:
        return self.running

    def last_words(self, entry: QueuedRequest) -> str:
        return "it is unknown who asks"
