"""What a gate needs from the world: what the arms of a region did, and who reads and judges their answers."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

from gates.evidence.batch import Batch
from gates.model import ArmKey


class LanguageDetector(Protocol):
    """What tells the language of a text."""

    def language(self, text: str) -> str:
        """ISO 639-1, such as `en`; empty when the text is too short or too mixed to tell."""
        ...


class EvidenceSource(Protocol):
    """Where batches come from."""

    @property
    def settles_within(self) -> timedelta:
        """How long after a moment everything that ended before it is known.

        A window must not end later than this before now: what arrives after it was asked for is in no window.
        """
        ...

    def batch(self, stable: ArmKey, canary: ArmKey, since: datetime, until: datetime) -> Batch:
        """What both arms did in (since, until]; windows that touch add up to the window over both.

        An arm that the source knows nothing of is missing, with the reason.

        Raises:
            OutsideError: when the source is not there.
        """
        ...
