"""What a judge is asked by a file: one of kind Gates, or a whole delivery."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import get_args

from gates.reports.gate_file import EvidenceGates, Gate, GateFile
from gates.spec import USUAL_LOOK, Gates
from gates.terms import PAIRED, Source, Terms, terms_of
from pipelines.budget import shares
from pipelines.slos import gates_within
from pipelines.spec import Delivery
from tidegate.core.errors import UsageError
from tidegate.core.spec import load_spec, stated_kind

BY_EVIDENCE: tuple[Gate, ...] = get_args(Gate)


@dataclass(frozen=True)
class Judged:
    """What the file asks."""

    name: str
    terms: Callable[[Source], Terms]
    """Given who counts where the file does not say: the terms of one trial."""
    planned: Callable[[timedelta], Terms]
    """Given how long a stage may take: the terms of one trial in it, the burn rate of a delivery's SLO among them."""
    not_asked: tuple[str, ...]
    """Gates of the file that batches of evidence cannot answer, such as quality on a golden set."""
    look: timedelta
    """Between two batches."""


def read_gates(path: Path) -> Judged:
    """The file at `path`.

    Raises:
        SpecError: with every problem, when it is neither of kind Gates nor of kind Delivery.
        UsageError: when it is a delivery without a gate that batches can answer.
    """
    if stated_kind(path) == "Delivery":
        judged = _of_delivery(load_spec(path, Delivery))
        if not judged.terms("users").gates:
            raise UsageError(f"{path} has no gate that evidence answers", hint=f"known: {', '.join(BY_EVIDENCE)}")
        return judged
    asked = load_spec(path, GateFile)
    return Judged(
        name=asked.metadata.name or path.stem,
        terms=lambda source: asked.terms(counted_by=source),
        planned=lambda _: asked.terms(),
        not_asked=(),
        look=asked.gates.budget.look or USUAL_LOOK,
    )


def _of_delivery(spec: Delivery) -> Judged:
    asked = [gate for gate in BY_EVIDENCE if getattr(spec.gates, gate) is not None]

    def sources(source: Source) -> dict[str, tuple[Source, ...]]:
        return {gate: (source,) for gate in asked if gate not in PAIRED}

    def terms(source: Source) -> Terms:
        return terms_of(spec.gates, asked, sources=sources(source), share=_share(spec))

    def planned(within: timedelta) -> Terms:
        burn = ["burn_rate"] if spec.gates.burn_rate else []
        return terms_of(gates_within(spec, within), asked + burn, sources=sources("users"), share=_share(spec))

    others = [gate for gate in Gates.model_fields if gate not in EvidenceGates.model_fields]
    return Judged(
        name=spec.metadata.name,
        terms=terms,
        planned=planned,
        not_asked=tuple(gate for gate in others if getattr(spec.gates, gate) is not None),
        look=spec.look,
    )


def _share(spec: Delivery) -> float:
    """What one region's stage has of the delivery's budget, so that judging each of them elsewhere keeps it."""
    return min((share for name, share in shares(spec).items() if name.startswith(("shadow@", "canary@"))), default=1.0)
