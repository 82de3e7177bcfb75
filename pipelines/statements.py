"""What a person states, what proves it, and who that turns out to be: of approvals, requests and resuming."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from hashlib import sha256
from typing import Literal

from pydantic import AwareDatetime

from tidegate.core.errors import UsageError
from tidegate.core.model import Value


class Statement(Value):
    """What somebody says, and of what. Its text is what is signed, so that it counts for nothing else."""

    format: Literal["tidegate/statement/v1"] = "tidegate/statement/v1"
    says: Literal["approve", "refuse", "request", "resume"]
    question: str
    """What is asked: a step's id, `wave@2`, `freeze`, `request` or `resume`."""
    delivery: str
    model: str
    version: str
    plan: str
    """Digest of the plan as the delivery was opened with it."""
    evidence: str
    """Digest of what there was to see when it was asked."""
    reason: str = ""
    at: AwareDatetime

    @property
    def text(self) -> str:
        """One line for each field, so that people can read what they sign."""
        return self.model_dump_json(indent=1) + "\n"


def digest_of(statement: str) -> str:
    """By what an OIDC token names a statement: SHA-256 of its text."""
    return sha256(statement.encode()).hexdigest()


class Unproven(UsageError):
    """A proof that does not prove what it says."""


class Proof(Value):
    """A statement with what proves who made it."""

    kind: Literal["ssh", "oidc"]
    statement: str
    """Its text, to the byte."""
    credential: str
    """The armored SSH signature over the text, or the token."""

    def read(self) -> Statement:
        """What it is for.

        Raises:
            Unproven: that is no statement of a form that is known here.
        """
        try:
            return Statement.model_validate_json(self.statement)
        except ValueError:
            raise Unproven("its statement cannot be read", hint="answer with `tidegate approve`") from None


class Person(Value):
    """Who that is, by a proof that was checked, or by a name alone."""

    identity: str
    """As the keys' file or the issuer names them."""
    how: str = "named, not proven"
    """By what it was proven, for people: `SSH key SHA256:...`, `OIDC issuer https://...`."""
    proven: bool = True
    groups: frozenset[str] = frozenset()
    listed: bool = False
    """Whether the trust file names them, and not only an issuer that knows the whole world."""

    def __str__(self) -> str:
        return f"{self.identity} ({self.how})"

    def is_same(self, other: Person | None) -> bool:
        """Whether both have proven to be one person."""
        if other is None or not (self.proven and other.proven):
            return False
        return self.identity.casefold() == other.identity.casefold()


def utc(at: datetime) -> str:
    """To the second, for people."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


Prover = Callable[[str], Proof]
"""Proves who makes the statement with that text, on the machine of the one who makes it.

It raises UsageError when the key or the token is not there or cannot be used.
"""
