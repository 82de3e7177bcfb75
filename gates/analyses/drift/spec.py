"""The drift gate's settings, what it looks at, and the bins that are frozen before the first request is judged.

It looks at numbers and names of requests and answers, never at their words.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from gates.stats.divergence import Statistic
from tidegate.core.model import SpecConflict, SpecModel, Value
from tidegate.core.units import Duration


class Feature(StrEnum):
    """One thing that can drift; the first three are of prompts, the others of answers."""

    PROMPT_LENGTH = "prompt_length"
    """In characters: tokens would change with the tokenizer of the version that counts them."""
    LANGUAGE = "language"
    TOPIC = "topic"
    LENGTH = "length"
    """In tokens, as the engine counted."""
    ENTROPY = "entropy"
    """Of the next token, mean over the answer, in nats."""
    FINISH_REASON = "finish_reason"
    REFUSAL = "refusal"
    """Whether the answer declines in words."""


NUMERIC = frozenset({Feature.PROMPT_LENGTH, Feature.LENGTH, Feature.ENTROPY})
"""Those with an order; the others are names."""
ANSWER_NUMBERS = NUMERIC - {Feature.PROMPT_LENGTH}


class Reaction(StrEnum):
    """What a drift that is not the canary's doing means for the gate."""

    IGNORE = "ignore"
    """Not measured."""
    WARN = "warn"
    """Measured and said; decides nothing."""
    HOLD = "hold"
    """The gate cannot pass: what is measured now says little about the traffic that the reference saw."""


DEFAULT_PSI = {Feature.FINISH_REASON: 0.1, Feature.REFUSAL: 0.1}
"""Where no threshold is set; else 0.2, by custom the beginning of a change that matters. What is rare must be allowed
less: refusals that grow from 3 % to 15 % are no more than 0.2."""

Input = Literal[Feature.PROMPT_LENGTH, Feature.LANGUAGE, Feature.TOPIC]
Output = Literal[Feature.LENGTH, Feature.ENTROPY, Feature.FINISH_REASON, Feature.REFUSAL]


class Allowed(SpecModel):
    """Features that are looked at, and how far each may move: exactly one of the statistics."""

    psi: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    kl: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    js: Annotated[float, Field(gt=0, lt=0.693)] | None = None
    chi2: Annotated[float, Field(gt=0, lt=4)] | None = None
    ks: Annotated[float, Field(gt=0, lt=1)] | None = None

    @property
    def statistic(self) -> Statistic:
        """The one that is set; PSI when none is."""
        return next((name for name in Statistic if getattr(self, name) is not None), Statistic.PSI)

    def threshold(self, feature: Feature) -> float:
        """What it may be at most."""
        value = getattr(self, self.statistic)
        return DEFAULT_PSI.get(feature, 0.2) if value is None else float(value)

    def disagreement(self, features: Sequence[Feature]) -> Iterator[SpecConflict]:
        """Two thresholds at once leave open which counts; names have no order for `ks` to look at."""
        named = [name for name in Statistic if getattr(self, name) is not None]
        if len(named) > 1:
            yield SpecConflict((named[1],), " and ".join(named), "one statistic")
        unordered = [feature for feature in features if feature not in NUMERIC]
        if self.statistic is Statistic.KS and unordered:
            yield SpecConflict(("ks",), f"ks for {unordered[0]}", "psi, kl, js or chi2: its values have no order")


class InputsAllowed(Allowed):
    """How far what users ask may differ: between the arms, and from the reference window."""

    features: tuple[Input, ...] = Field(default=(Feature.PROMPT_LENGTH, Feature.LANGUAGE), min_length=1)

    def contradictions(self) -> Iterator[SpecConflict]:
        """As `disagreement` says."""
        yield from self.disagreement(self.features)


class OutputsAllowed(Allowed):
    """How far the canary's answers may differ from those of the stable arm at the same time."""

    features: tuple[Output, ...] = Field(default=(Feature.LENGTH, Feature.FINISH_REASON, Feature.REFUSAL), min_length=1)

    def contradictions(self) -> Iterator[SpecConflict]:
        """As `disagreement` says."""
        yield from self.disagreement(self.features)


def _features(value: Any) -> Any:
    # `outputs: [length, entropy]` names the features and leaves the threshold as it is.
    return {"features": value} if isinstance(value, list | tuple) else value


class DriftGate(SpecModel):
    """Users must ask both arms the same kind of things, and the canary must answer in the same kind of way."""

    inputs: Annotated[InputsAllowed, BeforeValidator(_features)] | None = InputsAllowed()
    """Absent (`null`): what users ask is not looked at."""
    outputs: Annotated[OutputsAllowed, BeforeValidator(_features)] | None = OutputsAllowed()
    reference: Duration = timedelta(hours=1)
    """How long before the delivery the reference window begins; it ends where the delivery begins."""
    since_reference: Reaction = Reaction.WARN
    """When users ask both arms other things than in the reference window: the world's doing, not the canary's."""
    bins: int = Field(default=10, ge=2, le=50)
    """Of a number: equally full in the reference."""
    min_requests: int = Field(default=100, ge=20)
    """On each side of a comparison before its first look, and in the reference before its bins are frozen."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """A gate that looks at nothing could say nothing."""
        for name, part in (("inputs", self.inputs), ("outputs", self.outputs)):
            for found in part.contradictions() if part else ():
                yield SpecConflict((name, *found.where), found.found, found.expected)
        if self.inputs is None and self.outputs is None:
            yield SpecConflict((), "neither inputs nor outputs", "at least one of them")


class Bins(Value):
    """Where the values of one feature are counted, and how many the reference had there."""

    edges: tuple[float, ...] = ()
    """Of numbers: upper ends, rising; a value belongs to the first edge that it does not exceed."""
    names: tuple[str, ...] = ()
    """Of names: each with a bin; the last bin is for any other."""
    reference: tuple[int, ...]

    def place(self, value: float | str) -> int:
        """The index of the bin of `value`."""
        if isinstance(value, str):
            return self.names.index(value) if value in self.names else len(self.names)
        return bisect_left(self.edges, value)


class DriftReference(Value):
    """The reference, frozen before the first request is judged."""

    bins: Mapping[Feature, Bins]
    """Of every feature that the settings name and that enough requests had."""
    is_window: bool = True
    """A window before the delivery, with which now can be compared; false when the bins come from the first requests
    of the delivery's own stable arm."""
