"""Webhooks of MLflow 3: their signature, whether one is recent enough, and what an authentic one says. Pure."""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from http import HTTPStatus

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipelines.requests import DeliveryRequest
from tidegate.core.errors import UsageError

EVENTS = ("model_version_alias.created", "model_version_alias.deleted")
"""Those that a webhook for tidegate is registered for."""


class Malformed(ValueError):
    """Signed, but not what MLflow sends."""


class _Data(BaseModel):
    """Of both events; other fields, such as those of later versions of MLflow, are let be."""

    model_config = ConfigDict(frozen=True, strict=True)

    name: str = Field(min_length=1, max_length=256)
    version: str | None = Field(default=None, pattern=r"^[1-9][0-9]{0,18}$")
    alias: str | None = Field(default=None, min_length=1, max_length=256)


class _Envelope(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)

    entity: str = Field(max_length=64)
    action: str = Field(max_length=64)
    data: dict[str, object]


def read(body: bytes) -> tuple[str | None, DeliveryRequest | None]:
    """The registered model whose alias was set or removed, and the request for a delivery where one was set.

    None twice for all other events.

    Raises:
        Malformed: it is no event, or lacks what an event of its kind has.
    """
    try:
        envelope = _Envelope.model_validate_json(body)
        event = f"{envelope.entity}.{envelope.action}"
        if event not in EVENTS:
            return None, None
        data = _Data.model_validate(envelope.data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise Malformed(f"{where}: {first['msg']}") from None
    if envelope.action == "deleted":
        return data.name, None
    if not data.version or not data.alias:
        raise Malformed(f"{event}: no version, or no alias")
    return data.name, DeliveryRequest(model=data.name, version=data.version, alias=data.alias)


SIGNATURE_HEADER = "X-MLflow-Signature"
TIMESTAMP_HEADER = "X-MLflow-Timestamp"
DELIVERY_ID_HEADER = "X-MLflow-Delivery-Id"

TOLERANCE = timedelta(minutes=5)
"""Between MLflow's clock and ours, its retries included: three, of up to 30 seconds, 7 seconds of pauses between."""

LEAST_CHARACTERS, LEAST_DISTINCT = 16, 8
"""Of a secret; what is shorter, or the same again and again, could be guessed from one message that was overheard."""

# Without a dot in either, no part of one can be passed off as a part of the other.
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_SECONDS = re.compile(r"[0-9]{1,11}")


class WebhookStatus(StrEnum):
    """How a webhook request is answered; the first seven are refusals."""

    UNSIGNED = "unsigned"
    """A header is missing, or is not as MLflow writes it."""
    FORGED = "forged"
    """Signed with another secret, or changed on the way."""
    STALE = "stale"
    """From too long ago, or from the future."""
    REPLAYED = "replayed"
    """The same message came before."""
    MALFORMED = "malformed"
    OVERSIZE = "oversize"
    UNAVAILABLE = "unavailable"
    """The disk did not take it; MLflow tries again."""
    UNKNOWN_MODEL = "unknown-model"
    """Authentic, but of a model that is not delivered here: MLflow sends every model's events to every webhook."""
    IGNORED = "ignored"
    """Authentic, but no alias that starts a delivery."""
    NOTED = "noted"
    """It requests nothing, such as an alias that was taken away: its id was kept, and the registry is looked at."""
    DUPLICATE = "duplicate"
    """The same request is queued already: by another webhook, or by polling the registry."""
    QUEUED = "queued"

    @property
    def http_status(self) -> HTTPStatus:
        """MLflow tries 429, 500, 502, 503 and 504 again, and nothing else."""
        return _HTTP.get(self, HTTPStatus.OK)


_HTTP = {
    WebhookStatus.UNSIGNED: HTTPStatus.UNAUTHORIZED,
    WebhookStatus.FORGED: HTTPStatus.UNAUTHORIZED,
    WebhookStatus.STALE: HTTPStatus.UNAUTHORIZED,
    WebhookStatus.REPLAYED: HTTPStatus.CONFLICT,
    WebhookStatus.MALFORMED: HTTPStatus.BAD_REQUEST,
    WebhookStatus.OVERSIZE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    WebhookStatus.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    WebhookStatus.QUEUED: HTTPStatus.ACCEPTED,
}


@dataclass(frozen=True)
class Message:
    """A webhook request as it came in; a header that is missing is empty."""

    id: str
    timestamp: str
    """Unix seconds."""
    signature: str
    body: bytes


def sign(secret: str, message_id: str, timestamp: str, body: bytes) -> str:
    """The signature as the header carries it."""
    signed = b".".join((message_id.encode(), timestamp.encode(), body))
    return f"v1,{b64encode(hmac.digest(secret.encode(), signed, 'sha256')).decode()}"


def reject_reason(message: Message, secrets: Sequence[str], now: datetime) -> WebhookStatus | None:
    """Why the message is not believed; None when it is MLflow's own and recent.

    Any of `secrets` signs: while one is replaced by another, messages come with both. Whether a message is stale is
    said only of what is signed, so that nobody without a secret learns anything.
    """
    if not (_ID.fullmatch(message.id) and _SECONDS.fullmatch(message.timestamp) and message.signature):
        return WebhookStatus.UNSIGNED
    expected = (sign(secret, message.id, message.timestamp, message.body) for secret in secrets)
    # Of bytes, and in the same time wherever they differ: text that is not ASCII could not be compared.
    if not any(hmac.compare_digest(each.encode(), message.signature.encode()) for each in expected):
        return WebhookStatus.FORGED
    if abs(now.timestamp() - int(message.timestamp)) > TOLERANCE.total_seconds():
        return WebhookStatus.STALE
    return None


def weakness(secret: str) -> str | None:
    """Why a secret could be guessed; None when it could not."""
    if len(secret) < LEAST_CHARACTERS:
        return f"has {len(secret)} characters; expected at least {LEAST_CHARACTERS}"
    if len(set(secret)) < LEAST_DISTINCT:
        return f"has {len(set(secret))} different characters; expected at least {LEAST_DISTINCT}"
    return None


SECRET = "TIDEGATE_WEBHOOK_SECRET"
"""The environment variable with what MLflow signs with."""
SECRET_BEFORE = f"{SECRET}_BEFORE"
"""With what it signed until now: believed too, while the one takes the place of the other."""


def secrets_of(environment: Mapping[str, str], *, needed: bool) -> tuple[str, ...]:
    """The one to register with, and the one before it while it is still in use; none where no webhook can come.

    Raises:
        UsageError: one is needed and not set, or could be guessed.
    """
    found = {name: environment[name] for name in (SECRET, SECRET_BEFORE) if environment.get(name)}
    if SECRET not in found:
        if needed or found or SECRET in environment:
            hint = "export what `openssl rand -hex 32` prints, here and in MLflow"
            raise UsageError(f"{SECRET} is not set", hint=hint)
        return ()
    for name, secret in found.items():
        if weak := weakness(secret):
            raise UsageError(f"{name} {weak}", hint="for instance what `openssl rand -hex 32` prints")
    return tuple(found.values())
