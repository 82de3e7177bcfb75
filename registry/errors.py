"""What the registry can fail at: a name that leads nowhere (UsageError), and a store that does not do its part."""

from __future__ import annotations

from tidegate.core.errors import Interrupted, NotGenuine, OutsideError, Refused, UsageError


class UnknownModel(UsageError):
    """No registered model has that name."""


class UnknownAlias(UsageError):
    """No version of the model carries that alias."""


class UnknownDelivery(UsageError):
    """There is no delivery with that id."""


class UnfitModel(UsageError):
    """The folder or version is not one that tidegate registers or serves."""


class LedgerForged(NotGenuine):
    """The events of a delivery are not what was written by those who may write them."""


class DeliveryRuns(Refused):
    """Another delivery of the same model is alive; nothing was opened."""


class RegistryError(OutsideError):
    """The registry did not do its part."""


class StoreUnreachable(RegistryError):
    """MLflow could not be opened or did not answer."""


class StoreAway(StoreUnreachable):
    """MLflow's server did not answer, or with a fault that passes: the same may be asked again."""


class StoreRefused(StoreUnreachable):
    """MLflow answered no."""

    def __init__(self, message: str, *, hint: str, code: str = "", status: int = 400) -> None:
        """`code` is MLflow's name of the error, or empty; `status` the one of HTTP."""
        super().__init__(message, hint=hint)
        self.code, self.status = code, status


class DigestMismatch(RegistryError):
    """Files differ from what was registered; nothing of them was kept."""


class StopAsked(Interrupted):
    """Somebody has written into the ledger that this delivery is to end; it is still ours to roll back."""


class DeliveryLost(RegistryError):
    """The delivery was closed by another process, so this one may no longer act for it."""


def first_line(error: str | BaseException) -> str:
    """The first line of what somebody else says went wrong, cut when it is long."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else "nothing more" if isinstance(error, str) else type(error).__name__)[:200]
