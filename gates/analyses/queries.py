"""What gates on a team's own Prometheus have in common: selectors with open places, presets, and who is asked.

Both arms' series are read sample by sample and differenced here, as everywhere: `increase()` extrapolates, and tests
need what was really counted. What belongs together of a pod comes from the same scrapes.

Presets are common questions by name: of vLLM's own metrics, whose names and edges are those that the catalogue of
`slo.metrics` lists, and of signals of users, whose names are a convention: a program that counts under others says so
in the gate, which counts instead of the preset.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, Protocol

from pydantic import AfterValidator, field_validator, model_validator

from gates.analyses.base import GateSettings, StageUse, TestedGate
from gates.evidence.batch import ArmName, Batch, Buckets
from gates.evidence.names import PLACE, filled_places, is_selector
from gates.model import ArmKey, NoData
from gates.ports import EvidenceSource
from tidegate.core.model import SpecModel, Value

PLACES = ("region", "role", "version")
"""What a selector may leave open, written as `{{.version}}`."""
ARM_LABELS = 'region="{{.region}}",version="{{.version}}"'
"""Of the series of a preset, as tidegate's own scrape configuration has them. Not the role, which engines are given
when they start: one that is promoted would go on as the canary."""


def open_places(query: str, known: tuple[str, ...]) -> set[str]:
    """What a query leaves open.

    Raises:
        ValueError: something that nobody fills.
    """
    places = set(PLACE.findall(query))
    if unknown := sorted(places - set(known)):
        raise ValueError(f"only these open places: {', '.join(known)}; not {', '.join(unknown)}")
    return places


def _selector(text: str) -> str:
    if not {"role", "version"} & open_places(text, PLACES):
        raise ValueError("a label that tells the arms apart, with {{.role}} or {{.version}} as its value")
    if not is_selector(text):
        raise ValueError('one counter with its labels, as name{label="value"}, without a function around it')
    return text


Selector = Annotated[str, AfterValidator(_selector)]


def filled(selector: str, arm: ArmKey) -> str:
    """The selector of one arm's series, with nothing left open."""
    return filled_places(selector, arm.model_dump())


@dataclass(frozen=True)
class Window:
    """(since, until]."""

    since: datetime
    until: datetime

    @property
    def seconds(self) -> float:
        """How long it is."""
        return (self.until - self.since).total_seconds()


class QuerySource(Protocol):
    """A Prometheus that is asked about one arm; what it has nothing of is no 0.

    All raise an `OutsideError` when it is not there, or when what is asked is not what its name says.
    """

    def counted(self, selector: str, arm: ArmKey, window: Window) -> Mapping[str, int]:
        """By pod, what counters of whole events gained; empty when there is no such series."""
        ...

    def summed(self, selector: str, arm: ArmKey, window: Window) -> Mapping[str, float]:
        """By pod, what counters of any numbers gained; empty when there is no such series."""
        ...

    def distributed(self, selector: str, arm: ArmKey, window: Window) -> Mapping[str, Buckets]:
        """By pod, what the `_bucket` series of a classic histogram gained; empty when there is no such series."""
        ...

    def value(self, query: str, arm: ArmKey, window: Window) -> float | NoData:
        """What a query of one number gives at the window's end."""
        ...


class AsksPrometheus(GateSettings):
    """A gate that may ask a team's Prometheus."""

    @property
    def asks(self) -> bool:
        """Whether this one does."""
        return True

    @abstractmethod
    def read(self, batch: Batch, gate: str, queries: QuerySource, arms: tuple[ArmKey, ArmKey], window: Window) -> Batch:
        """The batch with what stable and canary had in that window, for the gate of that name."""


def without(batch: Batch, what: str, found: NoData) -> Batch:
    """The batch with the reason why something is missing; the first counts."""
    return batch.model_copy(update={"missing": {what: found.reason, **batch.missing}})


class PrometheusGate(AsksPrometheus):
    """Settings of a gate that asks a team's Prometheus, and nobody else."""

    usual_sources = ("proxy",)
    from_batches = True
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Settings by name; each `{ARM}` in them stands for the labels that tell the arms apart."""

    preset: str | None = None
    """Settings of a common question by name; whatever the gate says itself counts instead."""
    labels: str = ""
    """Of the preset's series, in place of `region` and `version`: `service="chat",version="{{.version}}"`."""

    @field_validator("preset")
    @classmethod
    def _known(cls, preset: str | None) -> str | None:
        if preset is not None and preset not in cls.presets:
            raise ValueError(f"one of {', '.join(cls.presets)}")
        return preset

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, given: Any) -> Any:
        chosen = given.get("preset") if isinstance(given, Mapping) else None
        if not isinstance(chosen, str) or chosen not in cls.presets:
            return given
        labels = str(given.get("labels") or ARM_LABELS)
        preset = cls.presets[chosen].items()
        known = {name: each.replace("{ARM}", labels) if isinstance(each, str) else each for name, each in preset}
        return {**known, **given}


class BothArmsGate(PrometheusGate, TestedGate):
    """One that compares what both arms' series gained."""

    stages = (StageUse("canary", ("proxy",)),)
    holds: ClassVar[str]
    """The field of a batch in which its evidence stands, by gate."""

    @abstractmethod
    def of_arm(self, queries: QuerySource, arm: ArmName, key: ArmKey, window: Window) -> tuple[Value, ...] | NoData:
        """What one arm's series gained, pod by pod."""

    def read(self, batch: Batch, gate: str, queries: QuerySource, arms: tuple[ArmKey, ArmKey], window: Window) -> Batch:
        for arm, key in zip(ArmName, arms, strict=True):
            found = self.of_arm(queries, arm, key, window)
            if isinstance(found, NoData):
                batch = without(batch, gate, found)
            else:
                held = getattr(batch, self.holds)
                batch = batch.model_copy(update={self.holds: {**held, gate: (*held.get(gate, ()), *found)}})
        return batch


def nothing_of(selector: str, key: ArmKey) -> NoData:
    """A series that is not there."""
    return NoData(reason=f"Prometheus has no samples of {filled(selector, key)} in this window")


def asking_prometheus(settings: Mapping[str, SpecModel]) -> dict[str, AsksPrometheus]:
    """Those gates that ask a team's Prometheus, by name."""
    return {gate: each for gate, each in settings.items() if isinstance(each, AsksPrometheus) and each.asks}


class Reads(Protocol):
    """What reads evidence of both arms besides the usual counts, for one gate, of whom `WithQueries` asks."""

    def read(self, batch: Batch, gate: str, queries: Any, arms: tuple[ArmKey, ArmKey], window: Window) -> Batch:
        """The batch with what stable and canary had in that window, for the gate of that name."""


class WithQueries:
    """An evidence source, and what its gates ask somebody else of the same arms and windows."""

    def __init__(self, source: EvidenceSource, queries: Any, gates: Mapping[str, Reads]) -> None:
        """`gates` are those that are asked, by name; `queries` is whom they ask."""
        self._source, self._queries, self._gates = source, queries, gates

    @property
    def settles_within(self) -> timedelta:
        """As the source below."""
        return self._source.settles_within

    def batch(self, stable: ArmKey, canary: ArmKey, since: datetime, until: datetime) -> Batch:
        """As the source below; where a series is not there, the reason is among what is missing."""
        batch = self._source.batch(stable, canary, since, until)
        for name, gate in self._gates.items():
            batch = gate.read(batch, name, self._queries, (stable, canary), Window(since, until))
        return batch
