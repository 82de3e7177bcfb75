"""What the registry can fail at.

UnknownModel, UnknownVersion, UnknownAlias (UsageError)   the name leads nowhere; says what there is
UnknownSource (UsageError)                                no run or repository has that name, or it is not for us
UnknownDelivery (UsageError)                              no ledger has that id
LedgerForged (NotGenuine)                                 the events of a delivery are not what was written
UnfitModel (UsageError)                                   a folder or version that tidegate will not serve
└── NotAdopted                                            a version whose digests nobody has noted yet
DeliveryRuns (Refused)                                    another delivery of the model is alive
RegistryError (OutsideError)
├── StoreUnreachable   the tracking store did not answer
│   └── StoreRefused       it answered no; `code` says why in MLflow's words
├── HubAway            Hugging Face's hub did not answer
├── DigestMismatch     files are not the registered ones; names each
└── DeliveryLost       somebody else closed this delivery while we were away
StopAsked (Interrupted)                                   somebody asks us to end the delivery that we carry
"""

from __future__ import annotations

from tidegate.core.errors import Interrupted, NotGenuine, OutsideError, Refused, UsageError


class UnknownModel(UsageError):
    """No registered model has that name."""


class UnknownVersion(UsageError):
    """The model has no such version."""


class UnknownAlias(UsageError):
    """No version of the model carries that alias."""


class UnknownSource(UsageError):
    """What a version is to be made of is not there, or not for this user."""


class UnknownDelivery(UsageError):
    """There is no delivery with that id."""


class UnfitModel(UsageError):
    """The folder or version is not one that tidegate registers or serves."""


class NotAdopted(UnfitModel):
    """The version was logged by somebody else, and its files have no digests yet."""


class LedgerForged(NotGenuine):
    """The events of a delivery are not what was written by those who may write them."""


class DeliveryRuns(Refused):
    """Another delivery of the same model is alive; nothing was opened."""


class RegistryError(OutsideError):
    """The registry did not do its part."""


class StoreUnreachable(RegistryError):
    """The tracking store could not be opened or did not answer."""


class StoreRefused(StoreUnreachable):
    """The tracking server answered no."""

    def __init__(self, message: str, *, hint: str, code: str, status: int) -> None:
        """`code` is MLflow's name of the error, or empty; `status` the one of HTTP."""
        super().__init__(message, hint=hint)
        self.code, self.status = code, status


class HubAway(RegistryError):
    """Hugging Face's hub did not answer, or not as it should."""


class DigestMismatch(RegistryError):
    """Files differ from what was registered; nothing of them was kept."""


class StopAsked(Interrupted):
    """Somebody has written into the ledger that this delivery is to end; it is still ours to take back."""


class DeliveryLost(RegistryError):
    """The delivery was closed by another process, so this one may no longer act for it."""
