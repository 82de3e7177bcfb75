"""What the ledger vouches for of a transcript: each verdict names how far it had been written, and what was there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

from pipelines.errors import NotAsPlanned
from pipelines.payloads import Said
from pipelines.ports import Event
from tidegate.core.model import Value


class Written(Value):
    """A transcript as it stood when a verdict was told."""

    bytes: int
    sha256: str


Vouched = Mapping[str, Sequence[Written]]
"""By the name of the trial, as `canary@eu-west-1`."""


def vouched(events: Iterable[Event]) -> Vouched:
    """Every state of every transcript that a verdict names."""
    found: dict[str, list[Written]] = {}
    for event in events:
        if event.kind == "verdict":
            for trial, (size, digest) in Said.model_validate(event.data).transcripts.items():
                found.setdefault(trial, []).append(Written(bytes=size, sha256=digest))
    return found


def proven(trial: str, content: bytes, states: Iterable[Written]) -> int:
    """How many bytes of a transcript the ledger vouches for; what stands behind them, nobody has judged by.

    Raises:
        NotAsPlanned: the transcript is another than the one that verdicts were told of.
    """
    digest, size = sha256(), 0
    for state in sorted(states, key=lambda state: state.bytes):
        if state.bytes > len(content):
            break
        digest.update(content[size : state.bytes])
        size = state.bytes
        if digest.hexdigest() != state.sha256:
            raise NotAsPlanned(f"the evidence of {trial} is not what its verdicts were told of; it was changed since")
    return size
