"""What a push tells: each blob on its way, and where the image is in the end."""

from __future__ import annotations

from enum import StrEnum

from tidegate.core.model import Value


class TransferKind(StrEnum):
    """How a blob came into the repository."""

    THERE = "there"
    """It was there before."""
    MOUNTED = "mounted"
    """The registry took it from the base's repository."""
    COPIED = "copied"
    """From the base's registry, through this machine."""
    SENT = "sent"


class Transfer(Value):
    """One blob, on its way or arrived."""

    title: str
    """What it holds: a layer's title, `base layer`, `configuration`."""
    digest: str
    size: int
    """In bytes."""
    how: TransferKind
    done: int
    """Bytes that have gone so far; `size` once it is there."""


class PushResult(Value):
    """What a push did."""

    reference: str
    """With the digest that the registry gave back."""
    transfers: tuple[Transfer, ...]
