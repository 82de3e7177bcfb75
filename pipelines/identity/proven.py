"""Proofs checked by what `trust.yaml` says of approvers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from pipelines.adapters.oidc import Issuer
from pipelines.adapters.ssh_signatures import signer_of
from pipelines.identity.model import Person, Proof, Unproven, read_statement
from pipelines.identity.spec import ApproversSpec


class ProvenIdentities:
    """`Identities` by SSH keys and OIDC issuers."""

    def __init__(self, approvers: ApproversSpec, folder: Path) -> None:
        """`folder` is where the trust file lies; paths in it start there."""
        self._approvers = approvers
        self._signers = folder / approvers.allowed_signers if approvers.allowed_signers else None
        self._issuers: Sequence[Issuer] = [Issuer(each, folder) for each in approvers.oidc]

    def verify(self, proof: Proof, given: datetime) -> Person:
        """As `Identities.verify`: the person under the one name that counts, with groups of the file and the token."""
        found = self._signed(proof) if proof.kind == "ssh" else self._told(proof, given)
        person = self._approvers.person(found.identity)
        groups = found.groups | self._approvers.groups_of(person)
        listed = proof.kind == "ssh" or bool(groups)
        return found.model_copy(update={"identity": person, "groups": groups, "listed": listed})

    def _signed(self, proof: Proof) -> Person:
        if self._signers is None:
            raise Unproven("trust.yaml names no `approvers.allowed_signers`, so that no SSH signature proves anything")
        at = read_statement(proof).at
        signer = signer_of(proof.statement, proof.credential, self._signers, at)
        return Person(identity=signer.principal, how=f"SSH key {signer.fingerprint}")

    def _told(self, proof: Proof, given: datetime) -> Person:
        name = Issuer.claimed(proof.credential)
        issuer = next((each for each in self._issuers if each.name == name), None)
        if issuer is None:
            raise Unproven(f"trust.yaml names no OIDC issuer {name!r}")
        return issuer.person(proof.credential, read_statement(proof), proof.statement, given)
