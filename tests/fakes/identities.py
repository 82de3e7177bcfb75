"""People whose word is proof: a credential that reads `ann of model-risk` proves that it was ann, of that group."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from pipelines.identity.model import Person, Proof, Unproven
from tidegate.core.errors import OutsideError


@dataclass
class FakeIdentities:
    """`Identities` without keys; `forged` is believed by nobody, and every question is counted."""

    away: bool = False
    """Whether nothing can be checked now."""
    asked: list[str] = field(default_factory=list)

    def verify(self, proof: Proof, given: datetime) -> Person:
        self.asked.append(proof.credential)
        if self.away:
            raise OutsideError("the issuer's keys cannot be had")
        if proof.credential == "forged":
            raise Unproven("no key of allowed_signers made the signature")
        words, _, once = proof.credential.partition(" once ")
        name, _, groups = words.partition(" of ")
        known = frozenset(groups.split())
        return Person(identity=name, how="SSH key SHA256:x", groups=known, listed=True, once=once or None)


@dataclass(frozen=True)
class FakeProver:
    """`Prover` of one of those people."""

    credential: str

    def prove(self, statement: str) -> Proof:
        return Proof(kind="ssh", statement=statement, credential=self.credential)
