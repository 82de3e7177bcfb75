"""Webhooks of MLflow 3: their signature, whether one is recent enough, and what an authentic one says. Pure."""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipelines.requests import DeliveryRequest
from tidegate.core.errors import UsageError

DELIVER_TAG = "tidegate.deliver"
"""A tag that requests the delivery of its model version, for people who may not move aliases: its value names one."""
EVENTS = (
    "model_version_alias.created",
    "model_version_alias.deleted",
    "model_version_tag.set",
    "model_version_tag.deleted",
)
"""Those that a webhook for tidegate is registered for."""


class Malformed(ValueError):
    """Signed, but not what MLflow sends."""


class WebhookEvent(BaseModel):
    """The part of a webhook that matters here."""

    model_config = ConfigDict(frozen=True)

    event: str
    """Such as `model_version_alias.created`."""
    model: str | None = None
    """The registered model whose alias or tag was set or removed; None for all other events."""
    request: DeliveryRequest | None = None
    """None when the alias or tag was removed."""


class _Data(BaseModel):
    """Of the four events; other fields, such as those of later versions of MLflow, are let be."""

    model_config = ConfigDict(frozen=True, strict=True)

    name: str = Field(min_length=1, max_length=256)
    version: str | None = Field(default=None, pattern=r"^[1-9][0-9]{0,18}$")
    alias: str | None = Field(default=None, min_length=1, max_length=256)
    key: str | None = None
    value: str | None = Field(default=None, max_length=5000)


class _Envelope(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)

    entity: str = Field(max_length=64)
    action: str = Field(max_length=64)
    data: dict[str, object]


def read(body: bytes) -> WebhookEvent:
    """What the event says.

    Raises:
        Malformed: it is no event, or lacks what an event of its kind has.
    """
    try:
        envelope = _Envelope.model_validate_json(body)
        event = f"{envelope.entity}.{envelope.action}"
        if event not in EVENTS:
            return WebhookEvent(event=event)
        data = _Data.model_validate(envelope.data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise Malformed(f"{where}: {first['msg']}") from None
    return _of_a_mark(event, data)


def _of_a_mark(event: str, data: _Data) -> WebhookEvent:
    if event.startswith("model_version_tag.") and data.key != DELIVER_TAG:
        return WebhookEvent(event=event)
    if event.endswith(".deleted"):
        return WebhookEvent(event=event, model=data.name)
    alias = data.alias if event == "model_version_alias.created" else data.value
    if not data.version or not alias:
        raise Malformed(f"{event}: no version, or no alias")
    return WebhookEvent(
        event=event, model=data.name, request=DeliveryRequest(model=data.name, version=data.version, alias=alias)
    )


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


class RejectReason(StrEnum):
    """Why a webhook is rejected."""

    UNSIGNED = "unsigned"
    """A header is missing, or is not as MLflow writes it."""
    FORGED = "forged"
    """Signed with another secret, or changed on the way."""
    STALE = "stale"
    """From too long ago, or from the future."""


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


def reject_reason(
    message: Message, secrets: Sequence[str], now: datetime, tolerance: timedelta = TOLERANCE
) -> RejectReason | None:
    """Why the message is not believed; None when it is MLflow's own and recent.

    Any of `secrets` signs: while one is replaced by another, messages come with both. Whether a message is stale is
    said only of what is signed, so that nobody without a secret learns anything.
    """
    if not (_ID.fullmatch(message.id) and _SECONDS.fullmatch(message.timestamp) and message.signature):
        return RejectReason.UNSIGNED
    expected = (sign(secret, message.id, message.timestamp, message.body) for secret in secrets)
    # Of bytes, and in the same time wherever they differ: text that is not ASCII could not be compared.
    if not any(hmac.compare_digest(each.encode(), message.signature.encode()) for each in expected):
        return RejectReason.FORGED
    if abs(now.timestamp() - int(message.timestamp)) > tolerance.total_seconds():
        return RejectReason.STALE
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
