"""Errors on their way from the fleet host to whoever asked: the same class, the same words."""

from __future__ import annotations

from typing import Any

from rollouts import errors
from tidegate.core.errors import OutsideError, Refused, TidegateError, UsageError

KNOWN: dict[str, type[TidegateError]] = {
    kind.__name__: kind
    for kind in (
        errors.EngineDidNotStart,
        errors.Unreachable,
        errors.NoConnection,
        errors.NotConfirmed,
        errors.NotPossible,
        errors.Overruled,
        errors.NotOurs,
        errors.NotTheCarrier,
        errors.WouldTakeDown,
        errors.NoAccess,
        errors.ApiError,
        errors.Invalid,
        errors.Unauthorized,
        errors.Forbidden,
        errors.NotFound,
        errors.Conflict,
        errors.Gone,
        errors.TooManyRequests,
        errors.FleetError,
        errors.CapacityError,
        errors.PortInUse,
        errors.RulesRefused,
        OutsideError,
        Refused,
        UsageError,
    )
}


def pack(error: TidegateError) -> dict[str, Any]:
    """The error as JSON; a class that the other side does not know goes as its nearest known base."""
    kind = next(base.__name__ for base in type(error).__mro__ if base.__name__ in KNOWN)
    return {"error": kind, "message": error.message, "hint": error.hint, "detail": error.detail}


def unpack(data: dict[str, Any]) -> TidegateError:
    """The error that `pack` was given."""
    return KNOWN[data["error"]](data["message"], hint=data["hint"], detail=data["detail"])
