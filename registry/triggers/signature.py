"""MLflow's signature of a webhook, and whether it is recent enough to be believed.

As `mlflow/webhooks/delivery.py` of MLflow 3 makes it, after the Standard Webhooks convention: an HMAC-SHA256 over
`delivery_id.timestamp.payload` in base64, after `v1,`. A request that MLflow tries again keeps its id, its timestamp
and its signature; only its arrival differs.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

SIGNATURE_HEADER = "X-MLflow-Signature"
TIMESTAMP_HEADER = "X-MLflow-Timestamp"
DELIVERY_ID_HEADER = "X-MLflow-Delivery-Id"

TOLERANCE = timedelta(minutes=5)
"""Between MLflow's clock and ours, its retries included: three, of up to 30 seconds, 7 seconds of pauses between."""

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


def distrust(message: Message, secret: str, now: datetime, tolerance: timedelta = TOLERANCE) -> Distrust | None:
    """Why the message is not believed; None when it is MLflow's own and recent.

    Whether it is stale is said only of what is signed, so that nobody without the secret learns anything.
    """
    if not (_ID.fullmatch(message.id) and _SECONDS.fullmatch(message.timestamp) and message.signature):
        return Distrust.UNSIGNED
    expected = sign(secret, message.id, message.timestamp, message.body)
    # Of bytes, and in the same time wherever they differ: text that is not ASCII could not be compared.
    if not hmac.compare_digest(expected.encode(), message.signature.encode()):
        return Distrust.FORGED
    if abs(now.timestamp() - int(message.timestamp)) > tolerance.total_seconds():
        return Distrust.STALE
    return None
