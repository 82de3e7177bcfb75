"""Reconciles the registry, the ledger and the request queue, again and again; a webhook only shortens the wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from pipelines.requests import QueuedRequest, RequestState, after_failed_attempt, answer
from pipelines.triggers.queue import RequestQueue
from pipelines.triggers.webhooks import EVENTS
from registry.deliveries import MlflowDeliveries
from registry.mlflow import MlflowStore
from registry.mlflow_client import MALFORMED, all_pages
from registry.model import DeliverySummary
from tidegate.core.clock import Clock
from tidegate.core.errors import OutsideError, TidegateError
from tidegate.core.threads import call_in_thread

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.webhook import Webhook, WebhookEvent, WebhookEventStr, WebhookTestResult
    from mlflow.store.entities import PagedList


DESCRIPTION = "Starts deliveries: made by `tidegate serve --register`."
SETTINGS = (
    "MLflow's server sends to public addresses by https only, unless it runs with MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS=true"
    " and MLFLOW_WEBHOOK_ALLOWED_SCHEMES=https,http"
)


class MlflowTriggers:
    """Of one MLflow store."""

    def __init__(self, uri: str) -> None:
        self._store = MlflowStore(uri)

    def aliases(self, model: str) -> Mapping[str, str]:
        """The number of the version that each alias means; none when there is no such model.

        Raises:
            StoreUnreachable: MLflow did not answer.
        """
        return self._store.aliases(model) or {}

    def announce(self, name: str, url: str, secret: str) -> str:
        """Have MLflow call `url`, and have it send a test event there; returns what it got back, for people.

        The webhook of that name is changed when there is one. The test event is of a model that does not exist.

        Raises:
            OutsideError: MLflow refuses the address, or the test event did not arrive, or was refused.
            StoreUnreachable: MLflow did not answer.
        """

        def ask() -> WebhookTestResult:
            client = self._store.client
            with _refusals(url):
                events = _events()
                known = _named(client, name)
                if known is None:
                    webhook = client.create_webhook(name, url, events, description=DESCRIPTION, secret=secret)
                else:
                    webhook = client.update_webhook(
                        known.webhook_id, url=url, events=events, secret=secret, status="ACTIVE"
                    )
                return client.test_webhook(webhook.webhook_id, events[0])

        tested = self._store.ask(ask, once=True)
        if not tested.success:
            why = tested.error_message or f"{tested.response_status} {tested.response_body}"
            raise OutsideError(f"MLflow's test event did not arrive at {url}: {why}", hint=SETTINGS)
        return f"{tested.response_status} {tested.response_body}"


def _named(client: MlflowClient, name: str) -> Webhook | None:
    def page(token: str | None) -> PagedList[Webhook]:
        return client.list_webhooks(page_token=token)

    return next((webhook for webhook in all_pages(page) if webhook.name == name), None)


@contextmanager
def _refusals(url: str) -> Iterator[None]:
    """MLflow answered, and takes no such address: no word about the store is of help then."""
    from mlflow.exceptions import RestException

    try:
        yield
    except RestException as error:
        if error.error_code != MALFORMED:
            raise
        why = error.message.removeprefix(f"{MALFORMED}: ")
        raise OutsideError(f"MLflow refuses {url}: {why}", hint=SETTINGS) from error


def _events() -> list[WebhookEventStr | WebhookEvent]:
    from mlflow.entities.webhook import WebhookAction, WebhookEntity, WebhookEvent

    parts = [event.split(".") for event in EVENTS]
    return [WebhookEvent(WebhookEntity(entity), WebhookAction(action)) for entity, action in parts]


class Starter(Protocol):
    """Starts deliveries and does not wait for them."""

    async def start(self, entry: QueuedRequest) -> str:
        """Begin a delivery of that version; returns a name for what was started.

        Raises:
            TidegateError: nothing was started.
        """
        ...

    async def runs(self, entry: QueuedRequest) -> bool:
        """Whether what was started for the entry still runs, also when it was started by a process before this one."""
        ...

    def last_words(self, entry: QueuedRequest) -> str:
        """What the one that was started for the entry said last, or where to look; empty when nothing is known."""
        ...


NEWEST = 5
"""Deliveries among which one that runs is looked for: a model has one at a time."""
SOON = timedelta(seconds=5)
"""Until the next look while something was started that the ledger does not show yet."""


@dataclass
class Reconciler:
    """One model's; starts nothing while a delivery of the model runs, no matter who started it."""

    model: str
    alias: str
    """Which of its versions are to be delivered."""
    every: timedelta
    """Between two looks at the registry, when no webhook asks for one."""
    inbox: RequestQueue
    marks: MlflowTriggers
    ledgers: MlflowDeliveries
    starter: Starter
    clock: Clock
    say: Callable[[str], None]
    """Tells a person what happens."""
    looked: datetime | None = field(default=None, init=False)
    """When all was well last; None before the first time."""
    failures: int = field(default=0, init=False)
    """Looks in vain since this process began."""
    aliases: Mapping[str, str] = field(default_factory=dict, init=False)
    """What each alias of the model meant when all was well last."""
    delivers: bool = field(default=False, init=False)
    """Whether a delivery of the model was under way then, no matter who started it."""

    def __post_init__(self) -> None:
        self._woken, self._stopping = asyncio.Event(), False

    def wake(self) -> None:
        """Look now."""
        self._woken.set()

    def stop(self) -> None:
        """Return from `forever` after what is being done."""
        self._stopping = True
        self._woken.set()

    def is_current(self) -> bool:
        """Whether a look succeeded lately; a start takes a moment, so three times the usual pause."""
        return self.looked is not None and self.clock.now() - self.looked <= 3 * self.every + SOON

    async def forever(self) -> None:
        """Look, act, and wait; what is outside and not there is tried again next time."""
        while not self._stopping:
            self._woken.clear()
            try:
                soon = await self.once()
            except TidegateError as error:
                self.failures += 1
                self.say(f"not reconciled: {error}")
                soon = False
            pause = min(SOON, self.every) if soon else self.every
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), pause.total_seconds())

    async def once(self) -> bool:
        """One look; returns whether the next should be soon.

        Raises:
            TidegateError: the registry or the inbox did not answer; what was done until then stands.
        """
        looked = self.clock.now()
        aliases = await call_in_thread(self.marks.aliases, self.model)
        if request := self.inbox.compare(self.model, self.alias, aliases.get(self.alias), looked):
            self.say(f"{request}: found in the registry")
        # The ledger keeps every delivery there ever was: nobody asks for them while no request is open.
        if requests := self._standing(RequestState.QUEUED, RequestState.STARTED):
            deliveries, alive = await call_in_thread(self._deliveries)
            for entry in requests:
                await self._follow(entry, deliveries, alive)
            await self._begin_next(any_alive=bool(alive))
        self.aliases = aliases
        self.delivers = await call_in_thread(self._delivers)
        self.looked = looked
        return any(entry.delivery is None for entry in self._standing(RequestState.STARTED))

    def _delivers(self) -> bool:
        return any(self.ledgers.is_alive(each) for each in self.ledgers.deliveries(self.model, last=NEWEST))

    def _deliveries(self) -> tuple[Sequence[DeliverySummary], Collection[str]]:
        """All of the model, and the ids of those that live."""
        found = self.ledgers.deliveries(self.model)
        return found, {each.id for each in found if self.ledgers.is_alive(each)}

    async def _follow(
        self, entry: QueuedRequest, deliveries: Sequence[DeliverySummary], alive: Collection[str]
    ) -> None:
        """Write down what has become of a request by now."""
        found = answer(entry, deliveries, alive)
        if found is not None:
            self._update(entry, _answered(entry, found, alive=found.id in alive))
        elif entry.state is RequestState.STARTED and not await self.starter.runs(entry):
            failed = after_failed_attempt(entry, self.clock.now())
            said = ": ".join(filter(None, (failed.note, self.starter.last_words(entry))))
            self._update(entry, failed.model_copy(update={"note": said}))

    async def _begin_next(self, *, any_alive: bool) -> None:
        queued = self._standing(RequestState.QUEUED)
        # Those before the last one have lost the alias to it. It may pause after a failed attempt.
        ready = queued and queued[-1].not_before <= self.clock.now()
        if ready and not any_alive and not self._standing(RequestState.STARTED):
            await self._begin(queued[-1])

    async def _begin(self, entry: QueuedRequest) -> None:
        """Start it. That it was tried is written first: nothing is ever started twice for want of a note."""
        trying = entry.model_copy(update={"state": RequestState.STARTED, "tries": entry.tries + 1, "note": "starting"})
        self._update(entry, trying)
        try:
            run = await self.starter.start(trying)
        except TidegateError as error:
            failed = after_failed_attempt(trying, self.clock.now())
            self._update(trying, failed.model_copy(update={"note": f"{failed.note}: {error}"}))
            return
        self._update(trying, trying.model_copy(update={"run": run, "note": f"started as {run}"}))

    def _standing(self, *states: RequestState) -> list[QueuedRequest]:
        found = self.inbox.standing(self.model, self.alias)
        return [entry for entry in found if entry.state in states]

    def _update(self, before: QueuedRequest, after: QueuedRequest) -> None:
        if after != before:
            self.inbox.update(after)
            self.say(f"{after.request}: {after.state}: {after.note}")


def _answered(entry: QueuedRequest, delivery: DeliverySummary, *, alive: bool) -> QueuedRequest:
    if alive:
        note = f"delivery {delivery.id} runs on {delivery.host}"
        return entry.model_copy(update={"state": RequestState.STARTED, "delivery": delivery.id, "note": note})
    ending = delivery.outcome or f"died; `tidegate resume {delivery.id}` carries it on"
    note = f"delivery {delivery.id}: {ending}"
    return entry.model_copy(update={"state": RequestState.OVER, "delivery": delivery.id, "note": note})
