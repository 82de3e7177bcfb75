"""What a file of gates asks: one of kind Gates, or a delivery's spec."""

from __future__ import annotations

from pathlib import Path

from gates.evidence.batch import USUAL_LOOK
from gates.reports.gate_file import GateFile
from gates.spec import kinds_from_batches
from tidegate.app.wiring.gates.model import GateSet
from tidegate.core.errors import UsageError
from tidegate.core.spec import load_spec, stated_kind


def read_gates(path: Path, *, of_prometheus: bool = False) -> GateSet:
    """The file at `path`; `of_prometheus` when the evidence is there, which answers fewer gates.

    Raises:
        SpecError: with every problem, when it is neither of kind Gates nor of kind Delivery.
        UsageError: when it is a delivery without a gate that batches can answer.
    """
    if stated_kind(path) == "Delivery":
        # All that a delivery's spec can say is twice what a file of gates can.
        from pipelines.spec.delivery import Delivery
        from tidegate.app.wiring.gates.delivery_gates import gates_of_delivery

        judged = gates_of_delivery(load_spec(path, Delivery), of_prometheus=of_prometheus)
        if not judged.terms("users").gates:
            raise UsageError(
                f"{path} has no gate that evidence answers", hint=f"known: {', '.join(kinds_from_batches())}"
            )
        return judged
    asked = load_spec(path, GateFile, also=GateFile.without_answers if of_prometheus else lambda _: ())
    return GateSet(
        name=asked.metadata.name or path.stem,
        terms=lambda source: asked.terms(counted_by=source),
        planned=lambda _: asked.terms(),
        not_asked=(),
        look=asked.gates.budget.poll_interval or USUAL_LOOK,
        sources=asked.metrics.sources,
        service=asked.metadata.name,
    )
