"""The API server's refusals: from a `Status` body, or from whatever stands before the server, to one typed error.

Upstream: `k8s.io/apimachinery/pkg/apis/meta/v1.Status`; `reason` is for programs, `message` for people.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from rollouts.errors import ApiError, Conflict, Forbidden, Gone, Invalid, NotFound, TooManyRequests, Unauthorized
from rollouts.kube.model import Cause, Json

KINDS: Mapping[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}

TOO_LARGE = "ResourceVersionTooLarge"
"""The cause in a 504 when we know a later version than the server: it was restored, or lags behind for good."""

UNTYPED = "failed to create typed patch object"
"""How a server begins to say that an applied object does not fit its kind's schema."""

BODY_CHARACTERS = 2000
"""How much of an answer that is no `Status` is kept for `--debug`."""


def refusal(asked: str, status: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """The error for an answer of 400 and above; `asked` says what was asked, such as `GET rollouts/support-llm`."""
    said = _status_in(body)
    if said is None:
        # A proxy or load balancer in between speaks HTML, or nothing.
        text = body.decode(errors="replace")[:BODY_CHARACTERS]
        return KINDS.get(status, ApiError)(
            f"{asked}: answered {status}, not by the API server itself",
            status=status,
            retry_after_seconds=_seconds(retry_after),
            detail=text or None,
        )
    return error_of(asked, {"code": status, **said}, retry_after)


def error_of(asked: str, said: Json, retry_after: str | None = None) -> ApiError:
    """The error that a `Status` stands for, whether it came as an answer or as an event of a watch."""
    status = int(said.get("code") or 0)
    details = said.get("details") or {}
    causes = tuple(
        Cause(field=cause.get("field", ""), message=cause.get("message", ""), reason=cause.get("reason", ""))
        for cause in details.get("causes") or ()
    )
    kind = Invalid if _no_such_field(said) else KINDS.get(status, ApiError)
    if any(cause.reason == TOO_LARGE for cause in causes):
        kind = Gone
    error = kind(
        f"{asked}: {said.get('message') or said.get('reason') or 'no reason given'}",
        status=status,
        reason=said.get("reason") or "",
        retry_after_seconds=_seconds(retry_after, details.get("retryAfterSeconds")),
    )
    if isinstance(error, Invalid):
        error.causes = causes
    return error


def _no_such_field(said: Json) -> bool:
    """Whether an apply was refused for what is in it, which API servers up to 1.35 at least answer with a bare 500.

    They type the applied object before they look at `fieldValidation`, and the typing's error has no status of its own
    (`managedfields/internal/structuredmerge.go`: `Apply`).
    """
    return said.get("code") == 500 and str(said.get("message") or "").startswith(UNTYPED)


def _status_in(body: bytes) -> Json | None:
    try:
        said = json.loads(body)
    except ValueError:
        return None
    return said if isinstance(said, dict) and said.get("kind") == "Status" else None


def _seconds(header: str | None, detail: object = None) -> float | None:
    """The header first; a date in it, which Kubernetes never sends, counts as nothing."""
    for said in (header, detail):
        if said is not None and str(said).isdigit():
            return float(str(said))
    return None
