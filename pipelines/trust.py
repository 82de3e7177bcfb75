"""`trust.yaml`: whom and what a delivery believes. It stands outside MLflow, with whoever operates the deliveries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from pipelines.identity.spec import ApproversSpec
from pipelines.policy.trust import SpecTrust
from pipelines.trusted_images import EngineTrust
from tidegate.core.model import SpecModel
from tidegate.core.spec import load_spec

BESIDE_THE_SPEC = "trust.yaml"


class LedgerTrust(SpecModel):
    """Whose events count. Where keys are named, an event that none of them signed ends whatever reads it."""

    keys: tuple[Path, ...] = ()
    """Public keys in PEM, ECDSA on P-256, of everything that carries deliveries."""


class Trust(SpecModel):
    """What may be believed. What is not named here is believed as far as it can be checked without a key."""

    api_version: Literal["tidegate/v1"] = Field(default="tidegate/v1", alias="apiVersion")
    kind: Literal["Trust"] = "Trust"
    spec: SpecTrust = SpecTrust()
    engines: EngineTrust = EngineTrust()
    ledger: LedgerTrust = LedgerTrust()
    approvers: ApproversSpec = ApproversSpec()


@dataclass(frozen=True)
class Trusted:
    """A trust file as it was read."""

    trust: Trust
    folder: Path
    """Where it lies; relative paths in it start here."""


def trust_at(named: Path | None, spec_folder: Path) -> Trusted:
    """The trust file with that name, else the one beside the spec; an empty one where there is none.

    Args:
        named: by `--trust` or TIDEGATE_TRUST; it must be there.
        spec_folder: where the spec lies.

    Raises:
        SpecError: the file is named and missing, or is no trust file.
    """
    beside = spec_folder / BESIDE_THE_SPEC
    if named is None and not beside.exists():
        return Trusted(Trust(), spec_folder)
    path = named or beside
    return Trusted(load_spec(path, Trust), path.parent)
