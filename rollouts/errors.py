"""What a fleet can fail at, and how that goes over a wire."""

from __future__ import annotations

from typing import Any

from tidegate.core.errors import ExitCode, OutsideError, Refused, TidegateError, UsageError


class FleetError(OutsideError):
    """A region could not do what it was asked."""


class EngineDidNotStart(FleetError):
    """The engine died or did not become healthy before its deadline; `detail` has its last lines."""


class Unreachable(FleetError):
    """The fleet did not answer. It may still be serving."""


class NoConnection(Unreachable):
    """No connection came about: nothing was sent, so nothing was done."""


class HostGone(FleetError):
    """The fleet host has ended. Its engines and proxies ended with it: nobody is served, and nothing is on trial."""


class NoAccess(FleetError):
    """No credentials for a cluster: none were found, or what should give them failed."""


class KubeconfigWrong(NoAccess):
    """There is no kubeconfig, it cannot be read, or it lacks the context: wrong before anybody is asked."""

    exit_code = ExitCode.USAGE


class NotTheCarrier(FleetError):
    """Another process carries the delivery in this region: operations of this one are refused."""


class NotConfirmed(FleetError):
    """What was sent did not show its effect in time; it may still come."""


class NotPossible(FleetError):
    """The operation contradicts the state of the region."""


class Unfit(NotPossible):
    """Objects of others cannot be moved as the spec says, or the API server does not take ours; why is told."""


class Overruled(NotPossible):
    """Somebody else asked the region for another version, or took our trial away, during an operation of ours."""


class NotOurs(Refused):
    """Objects of somebody else's stand where this delivery's would be. They are left as they are."""


class ApiError(FleetError):
    """A Kubernetes API server refused a request, or failed at it (5xx)."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        retry_after_seconds: float | None = None,
        hint: str | None = None,
        detail: str | None = None,
    ) -> None:
        """`reason` is the server's one word, such as `AlreadyExists`; `status` 0 means that none is known."""
        super().__init__(message, hint=hint, detail=detail)
        self.status = status
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds
        """What the server asks to wait before the next request; None when it does not say."""


class Invalid(ApiError):
    """The request itself is wrong (400, 422; 500 for an apply with an unknown field); repeated, it stays wrong."""


class Unauthorized(ApiError):
    """The API server does not know who asks (401), with fresh credentials too."""


class Forbidden(ApiError):
    """RBAC or an admission rule does not allow it (403)."""


class NotFound(ApiError):
    """No such object, or no such resource (404)."""


class Conflict(ApiError):
    """Somebody was faster, the object exists already, or another field manager owns a field (409)."""


class TooManyRequests(ApiError):
    """Nothing was done; `retry_after_seconds` says when to ask again (429)."""


_BY_NAME = {
    each.__name__: each
    for each in (UsageError, *globals().values())
    if isinstance(each, type) and issubclass(each, TidegateError)
}


def error_to_json(error: TidegateError) -> dict[str, Any]:
    """The error as JSON; a class that the other side does not know goes as its nearest known base."""
    kind = next(base.__name__ for base in type(error).__mro__ if base.__name__ in _BY_NAME)
    return {"error": kind, "message": error.message, "hint": error.hint, "detail": error.detail}


def error_from_json(data: dict[str, Any]) -> TidegateError:
    """The error that `error_to_json` was given."""
    return _BY_NAME[data["error"]](data["message"], hint=data["hint"], detail=data["detail"])
