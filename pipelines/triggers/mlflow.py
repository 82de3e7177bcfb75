"""MLflow, asked which versions are to be delivered, and told whom to call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pipelines.triggers.webhooks import DELIVER_TAG, EVENTS
from registry.mlflow import MlflowStore
from registry.mlflow_client import MALFORMED, all_pages
from tidegate.core.errors import OutsideError

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
