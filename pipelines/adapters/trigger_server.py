"""The server by which MLflow starts deliveries: webhooks, reconciliation with the registry, and the live page."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.adapters.fleets import cluster_client
from pipelines.adapters.stores import mlflow_address, open_deliveries
from pipelines.adapters.web_server import Listener
from pipelines.authority.answering import BY_ALIAS, REQUESTED_BY
from pipelines.requests import QueuePolicy
from pipelines.spec.delivery import Delivery
from pipelines.state import StateFolder
from pipelines.triggers.app import (
    OPEN_TO_ALL,
    WEBHOOK,
    Numbers,
    Receiver,
    behind_door,
    metrics_route,
    receiver_routes,
    requests_route,
)
from pipelines.triggers.queue import RequestQueue
from pipelines.triggers.reconciler import Reconciler, Starter
from pipelines.triggers.starters import ProcessStarter
from pipelines.triggers.webhooks import DELIVER_TAG, EVENTS, SECRET, SECRET_BEFORE
from pipelines.views.page import LivePage, SnapshotReader
from registry.deliveries import MlflowDeliveries
from registry.mlflow import MlflowStore
from registry.mlflow_client import MALFORMED, all_pages
from tidegate.core.clock import SystemClock
from tidegate.core.errors import OutsideError, TidegateError
from tidegate.core.process import cancelled_by_signals, note
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

    def marked(self, model: str, alias: str) -> frozenset[str]:
        """Numbers of the versions that carry the alias, or the tag that names it; none when there is no such model.

        Raises:
            StoreUnreachable: MLflow did not answer.
        """
        aliases = self._store.aliases(model)
        if aliases is None:
            return frozenset()
        versions = self._store.versions(model)
        tagged = {version.version for version in versions if version.tags.get(DELIVER_TAG) == alias}
        return frozenset(tagged | ({aliases[alias]} if alias in aliases else set()))

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


TRACKING_URI = "MLFLOW_TRACKING_URI"


async def serve_triggers(
    spec: Delivery,
    spec_path: Path,
    listeners: tuple[Listener, Listener],
    report: Callable[[str, MlflowDeliveries], str],
    *,
    state: StateFolder,
    tracking_uri: str | None,
    context: str | None,
    workflows: bool,
    policy: QueuePolicy,
    every: timedelta,
    secrets: tuple[str, ...],
    register: str | None,
) -> None:
    """Receive and reconcile until Ctrl-C or SIGTERM.

    Args:
        spec: the delivery's.
        spec_path: its file.
        listeners: where webhooks come, and where the page is.
        report: renders the report of a delivery, by its id.
        state: where requests are kept.
        tracking_uri: of MLflow.
        context: of the cluster of workflows; None for the current one.
        workflows: whether workflows are started; else processes.
        policy: which of several requests is delivered.
        every: between two looks at the registry.
        secrets: with which MLflow signs; none to believe no webhook.
        register: the address at which MLflow reaches this receiver; None to register no webhook.
    """
    model, alias = spec.model.name, spec.model.origin
    triggers = MlflowTriggers(mlflow_address(state.root, tracking_uri))
    clock, loop = SystemClock(), asyncio.get_running_loop()
    (hook, page_at), options = listeners, listeners[0].options
    async with AsyncExitStack() as stack:
        ledgers = await call_in_thread(open_deliveries, state.root, tracking_uri)
        if workflows:
            starter = await stack.enter_async_context(_workflow_starter(spec, spec_path, context))
        else:
            starter = _process_starter(spec_path, state, tracking_uri)
        inbox = RequestQueue(state.root / "serve" / "inbox.db")
        stack.callback(inbox.close)
        reconciler = Reconciler(model, alias, policy, every, inbox, triggers, ledgers, starter, clock, note)

        def wake() -> None:
            loop.call_soon_threadsafe(reconciler.wake)

        receiver = Receiver(model, alias, secrets, inbox, clock, wake)
        requests = partial(inbox.standing, model, alias)
        look = SnapshotReader(model, ledgers, requests, clock).look
        page = LivePage(model, look, lambda delivery: report(delivery, ledgers), clock)
        hears = receiver_routes(receiver, reconciler)
        numbers = Numbers(receiver, reconciler, spec.metadata.name)
        shows = [requests_route(receiver), metrics_route(numbers), *page.routes()]
        names = options.names(register)
        door = partial(behind_door, hosts=names, password=options.password, open_to_all=OPEN_TO_ALL)
        # Probes are answered on both.
        if hook is not page_at:
            await stack.enter_async_context(hook.answering(door(hears)))
        await stack.enter_async_context(page_at.answering(door([*hears, *shows])))
        note(f"listening on {hook.address}{WEBHOOK} for {model}@{alias}")
        if hook is not page_at:
            note(f"the page is at {page_at.address}/")
        registering = _register(triggers.announce, f"tidegate-{spec.metadata.name}", register, secrets)
        await _reconcile(reconciler, asyncio.create_task(registering))


async def _reconcile(reconciler: Reconciler, registration: asyncio.Task[None]) -> None:
    """Until a signal; what is being started then is started whole."""
    work = asyncio.create_task(reconciler.forever())
    try:
        async with cancelled_by_signals("no new requests; deliveries that were started go on"):
            await asyncio.shield(work)
    except asyncio.CancelledError:
        reconciler.stop()
        await work
    finally:
        registration.cancel()
        await asyncio.wait([registration])


async def _register(
    announce: Callable[[str, str, str], str], name: str, url: str | None, secrets: tuple[str, ...]
) -> None:
    """Without the webhook everything still works, only later: what is wrong is told, and ends nothing."""
    if url is None:
        return
    # MLflow's library takes seconds to load, and a receiver that does not answer is tried for longer.
    note(f"webhook {name}: MLflow is asked to send a test event to {url}")
    try:
        answered = await asyncio.to_thread(announce, name, url, secrets[0])
    except TidegateError as error:
        note(f"webhook {name}: {error}")
    else:
        note(f"webhook {name}: MLflow's test event was answered {answered}")


@asynccontextmanager
async def _workflow_starter(spec: Delivery, spec_path: Path, context: str | None) -> AsyncIterator[Starter]:
    """Workflows of that cluster; None is the current one."""
    # Not above: who starts processes needs no Hera.
    from pipelines.triggers.starters import WorkflowStarter
    from pipelines.workflow.render import blueprint_of

    blueprint = blueprint_of(spec, spec_path)
    async with cluster_client(context, blueprint.namespace) as client:
        yield WorkflowStarter(client, blueprint.name, blueprint.namespace)


def _process_starter(spec: Path, state: StateFolder, tracking_uri: str | None) -> Starter:
    """Each the command `deliver` of this same installation."""
    command = [sys.executable, sys.argv[0], "deliver", str(spec.absolute()), "--state", str(state.root.absolute())]
    environment = {name: value for name, value in os.environ.items() if name not in {SECRET, SECRET_BEFORE}}
    environment[REQUESTED_BY] = BY_ALIAS
    if tracking_uri is not None:
        # Not among the arguments, which everybody on the machine can read: it may carry a password.
        environment[TRACKING_URI] = tracking_uri
    return ProcessStarter(command, environment, state.root / "serve" / "logs")
