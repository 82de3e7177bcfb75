"""The terms of a trial: everything that decides how evidence is judged, written down before there is any.

Changing a margin, a weight or a source after data were seen would void every guarantee. So the terms are
frozen as JSON, and a replay is the same terms with the same batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Literal, Protocol

from pydantic import Field

from gates.burn.spec import BurnRateGate
from gates.burn.watch import BurnWatch
from gates.drift.bins import Reference
from gates.drift.spec import DriftGate
from gates.drift.watch import DriftWatch
from gates.evidence import Batch
from gates.model import NoData, Verdict
from gates.questions.base import Question
from gates.questions.coverage import MirrorQuestion
from gates.questions.error_rate import FailuresQuestion, PairedFailuresQuestion
from gates.questions.latency import PairedTimesQuestion, TimesQuestion
from gates.questions.pairs import agreement_questions
from gates.questions.scores import ScoresQuestion
from gates.spec import AgreementGate, ErrorsGate, Gates, LatencyGate, ScoresGate
from tidegate.core.model import SpecModel, Value

Source = Literal["proxy", "users", "probe"]
Method = Literal["e-values/1", "e-values/2"]
"""The names of the statistics that can be judged by. `e-values/1` counted mirrored copies window by window; its
transcripts are judged so again."""
METHOD: Method = "e-values/2"
"""Of terms that are made now."""
PAIRED = frozenset({"agreement", "judge"})
"""Gates that compare answers to the same prompt, unless told otherwise."""
USUAL: Mapping[str, tuple[Source, ...]] = {**dict.fromkeys(PAIRED, ("probe",)), "burn_rate": ("proxy",)}
"""Who counts for a gate unless told otherwise; for the others users do."""
FAILED_PART = 2 / 3
"""Of the errors gate's share of the budget; the rest is for refused requests."""


ASKED = ("latency", "errors", "agreement", "judge", "burn_rate", "drift")
"""Every gate that a trial can ask."""


class Terms(Value):
    """What one trial asks, of whom, and how sure it must be."""

    method: Method = METHOD
    latency: LatencyGate | None = None
    errors: ErrorsGate | None = None
    agreement: AgreementGate | None = None
    judge: ScoresGate | None = None
    burn_rate: BurnRateGate | None = None
    drift: DriftGate | None = None
    reference: Reference | NoData = NoData(reason="no reference was frozen")
    """The bins in which drift is counted; frozen with the terms, because they decide what can be seen."""
    sources: Mapping[str, Annotated[tuple[Source, ...], Field(min_length=1)]] = {}
    """By gate, who counts for it; users, or the probe for gates on pairs, when it is not named."""
    rollback: float = Field(default=0.01, gt=0, lt=1)
    """The chance that this trial takes back a version that is no worse: its share of the delivery's budget."""
    accept: float = Field(default=0.05, gt=0, lt=1)
    """The chance that a version worse by a gate's margin passes that gate."""
    temper: bool = True
    mirrored: float | None = Field(default=None, gt=0, le=1)
    """The share of user traffic that is copied to the canary; None when the canary has users of its own."""

    @property
    def gates(self) -> tuple[str, ...]:
        """The names of the gates that are asked."""
        return tuple(name for name in ASKED if getattr(self, name) is not None)

    def sources_of(self, gate: str) -> tuple[Source, ...]:
        """Who counts for a gate."""
        return self.sources.get(gate, USUAL.get(gate, ("users",)))


def terms_of(
    gates: Gates,
    asked: Iterable[str],
    *,
    sources: Mapping[str, tuple[Source, ...]],
    share: float,
    mirrored: float | None = None,
    reference: Reference | NoData | None = None,
) -> Terms:
    """The terms of one trial of a delivery.

    `asked` names the gates, `share` is the trial's part of the delivery's chance of a false rollback, 0 to
    1; `mirrored` and `reference` are as in `Terms`.
    """
    settings: dict[str, SpecModel | None] = {name: getattr(gates, name) for name in asked}
    if gates.judge and "judge" in settings:
        # What the endpoint is asked, and how, is not the statistics' concern.
        settings["judge"] = ScoresGate(**{name: getattr(gates.judge, name) for name in ScoresGate.model_fields})
    budget = gates.budget
    sure = {"rollback": budget.rollback * share, "accept": budget.accept, "temper": budget.temper}
    known = {"reference": reference} if reference else {}
    terms = Terms.model_validate({**settings, **sure, **known, "sources": sources, "mirrored": mirrored})
    # Through JSON, because that is what is kept: a replay must start from the very same numbers.
    return Terms.model_validate_json(terms.model_dump_json())


class Watch(Protocol):
    """A gate with statistics of its own."""

    gate: str

    def refuse(self, batch: Batch) -> None:
        """Raise a `UsageError` when the batch does not fit the terms."""
        ...

    def take(self, batch: Batch, seconds: float) -> None:
        """Learn from one batch, so many seconds after the one before."""
        ...

    def restart(self) -> None:
        """Traffic is shared out anew."""
        ...

    def verdict(self, *, deadline_passed: bool) -> Verdict:
        """What it says of all batches so far."""
        ...


def watches(terms: Terms) -> Iterator[tuple[tuple[Source, ...], Watch]]:
    """The gates with statistics of their own, each with the sources it listens to and an even share of the budget."""
    rollback = terms.rollback / max(len(terms.gates), 1)
    if terms.burn_rate:
        yield terms.sources_of("burn_rate"), BurnWatch(terms.burn_rate, rollback=rollback, accept=terms.accept)
    if terms.drift:
        yield terms.sources_of("drift"), DriftWatch(terms.drift, terms.reference, rollback=rollback)


class Asked(Value):
    """A question's place in a trial."""

    gate: str
    source: Source
    weight: float
    """Its share of the trial's budget; all together make 1."""


def questions(terms: Terms) -> Iterator[tuple[Asked, Question]]:
    """Every question that the terms ask. Gates share the budget evenly, and each gate's sources share its part."""
    for gate in terms.gates:
        for source in (sources := terms.sources_of(gate)):
            found = list(_of_gate(terms, gate, source))
            for part, question in found:
                weight = part / sum(each for each, _ in found) / len(sources) / len(terms.gates)
                yield Asked(gate=gate, source=source, weight=weight), question


def _of_gate(terms: Terms, gate: str, source: Source) -> Iterator[tuple[float, Question]]:
    """Questions of one gate to one source, with their parts of its weight."""
    paired = source == "probe"
    if gate == "latency" and terms.latency:
        temper = terms.temper
        yield 1, PairedTimesQuestion(terms.latency) if paired else TimesQuestion(terms.latency, temper=temper)
    elif gate == "errors" and terms.errors and paired:
        yield 1, PairedFailuresQuestion(terms.errors)
    elif gate == "errors" and terms.errors:
        yield FAILED_PART, FailuresQuestion(terms.errors, "failed", temper=terms.temper)
        yield 1 - FAILED_PART, FailuresQuestion(terms.errors, "refused", temper=terms.temper)
        if terms.mirrored is not None:
            yield 0, MirrorQuestion(terms.mirrored, by_window=terms.method == "e-values/1")
    elif gate == "agreement" and terms.agreement:
        yield from ((1, question) for question in agreement_questions(terms.agreement))
    elif gate == "judge" and (scores := terms.judge):
        yield 1, ScoresQuestion(max_drop=scores.max_drop, tolerance=scores.tolerance, needed=scores.min_pairs)
