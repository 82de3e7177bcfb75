"""MLflow's signature of a webhook, and whether it is recent enough to be believed.

As `mlflow/webhooks/delivery.py` of MLflow 3 makes it, after the Standard Webhooks convention: an HMAC-SHA256 over
`delivery_id.timestamp.payload` in base64, after `v1,`. A request that MLflow tries again keeps its id, its timestamp
and its signature; only its arrival differs.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

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


class Distrust(StrEnum):
    """Why a message is not believed."""

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


def distrust(
    message: Message, secrets: Sequence[str], now: datetime, tolerance: timedelta = TOLERANCE
) -> Distrust | None:
    """Why the message is not believed; None when it is MLflow's own and recent.

    Any of `secrets` signs: while one is replaced by another, messages come with both. Whether a message is stale is
    said only of what is signed, so that nobody without a secret learns anything.
    """
    if not (_ID.fullmatch(message.id) and _SECONDS.fullmatch(message.timestamp) and message.signature):
        return Distrust.UNSIGNED
    expected = (sign(secret, message.id, message.timestamp, message.body) for secret in secrets)
    # Of bytes, and in the same time wherever they differ: text that is not ASCII could not be compared.
    if not any(hmac.compare_digest(each.encode(), message.signature.encode()) for each in expected):
        return Distrust.FORGED
    if abs(now.timestamp() - int(message.timestamp)) > tolerance.total_seconds():
        return Distrust.STALE
    return None


def weakness(secret: str) -> str | None:
    """Why a secret could be guessed; None when it could not."""
    if len(secret) < LEAST_CHARACTERS:
        return f"has {len(secret)} characters; expected at least {LEAST_CHARACTERS}"
    if len(set(secret)) < LEAST_DISTINCT:
        return f"has {len(set(secret))} different characters; expected at least {LEAST_DISTINCT}"
    return None
