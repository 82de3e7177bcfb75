"""Webhooks of MLflow 3: their signature, and whether one is recent enough. Pure."""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from http import HTTPStatus

from tidegate.core.errors import UsageError

EVENTS = ("model_version_alias.created", "model_version_alias.deleted")
"""Those that a webhook for tidegate is registered for."""

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
    """How a webhook request is answered; all but the last are refusals."""

    UNSIGNED = "unsigned"
    """A header is missing, or is not as MLflow writes it."""
    FORGED = "forged"
    """Signed with another secret, or changed on the way."""
    STALE = "stale"
    """From too long ago, or from the future."""
    INCOMPLETE = "incomplete"
    """Its body did not come in time."""
    OVERSIZE = "oversize"
    HEARD = "heard"
    """The registry is looked at now, whatever it says: MLflow sends every model's events to every webhook."""

    @property
    def http_status(self) -> HTTPStatus:
        """MLflow tries 429, 500, 502, 503 and 504 again, and nothing else."""
        others = {
            WebhookStatus.INCOMPLETE: HTTPStatus.BAD_REQUEST,
            WebhookStatus.OVERSIZE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            WebhookStatus.HEARD: HTTPStatus.ACCEPTED,
        }
        return others.get(self, HTTPStatus.UNAUTHORIZED)


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


def reject_reason(message: Message, secret: str, now: datetime) -> WebhookStatus | None:
    """Why the message is not believed; None when it is MLflow's own and recent. Nothing is without a secret.

    Whether it is stale is said only of what is signed, so that nobody without a secret learns anything. The same
    message again is believed again: all that it does is to have the registry looked at.
    """
    if not (_ID.fullmatch(message.id) and _SECONDS.fullmatch(message.timestamp) and message.signature):
        return WebhookStatus.UNSIGNED
    expected = sign(secret, message.id, message.timestamp, message.body)
    # Of bytes, and in the same time wherever they differ: text that is not ASCII could not be compared.
    if not secret or not hmac.compare_digest(expected.encode(), message.signature.encode()):
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


def secret_of(environment: Mapping[str, str], *, needed: bool) -> str:
    """What MLflow signs with; empty where no webhook can come.

    Raises:
        UsageError: it is needed and not set, or could be guessed.
    """
    secret = environment.get(SECRET, "")
    if not secret and (needed or SECRET in environment):
        hint = "export what `openssl rand -hex 32` prints, here and in MLflow"
        raise UsageError(f"{SECRET} is not set", hint=hint)
    if secret and (weak := weakness(secret)):
        raise UsageError(f"{SECRET} {weak}", hint="for instance what `openssl rand -hex 32` prints")
    return secret
