"""What is needed from the world in order to know who somebody is."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from pipelines.identity.model import Person, Proof


class Identities(Protocol):
    """Checks proofs."""

    def verify(self, proof: Proof, given: datetime) -> Person:
        """Who made the statement, which is not judged here.

        Args:
            proof: the statement, and what proves it.
            given: when it was handed in; a proof that was out of date by then proves nothing.

        Raises:
            Unproven: it does not prove it; says why.
            OutsideError: it cannot be checked now, such as when an issuer's keys cannot be had.
        """
        ...


class Prover(Protocol):
    """Proves who makes a statement, on the machine of whoever makes it."""

    def prove(self, statement: str) -> Proof:
        """The statement's text with what proves who says it.

        Raises:
            UsageError: the key or the token is not there or cannot be used.
        """
        ...
