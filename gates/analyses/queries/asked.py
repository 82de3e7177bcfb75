"""What gates on a team's own Prometheus have in common: selectors with open places, presets, and who is asked.

Both arms' series are read sample by sample and differenced here, as everywhere: `increase()` extrapolates, and tests
need what was really counted. What belongs together of a pod comes from the same scrapes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, ClassVar, Protocol

from pydantic import AfterValidator, field_validator, model_validator

from gates.evidence.batch import ArmName, Buckets
from gates.evidence.selector import PLACE, filled_places, is_selector
from gates.model import ArmKey, NoData
from tidegate.core.model import SpecModel, Value

PLACES = ("region", "role", "version")
"""What a selector may leave open, written as `{{.version}}`."""
ARM_LABELS = 'region="{{.region}}",version="{{.version}}"'
"""Of the series of a preset, as tidegate's own scrape configuration has them. Not the role, which engines are given
when they start: one that is promoted would go on as the canary."""


def _selector(text: str) -> str:
    if unknown := sorted(set(PLACE.findall(text)) - set(PLACES)):
        raise ValueError(f"only these open places: {', '.join(PLACES)}; not {', '.join(unknown)}")
    if not {"role", "version"} & set(PLACE.findall(text)):
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


class PrometheusGate(SpecModel):
    """Settings of a gate that asks a team's Prometheus."""

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


class BothArmsGate(PrometheusGate):
    """One that compares what both arms' series gained."""

    holds: ClassVar[str]
    """The field of a batch in which its evidence stands, by gate."""

    @abstractmethod
    def of_arm(self, queries: QuerySource, arm: ArmName, key: ArmKey, window: Window) -> tuple[Value, ...] | NoData:
        """What one arm's series gained, pod by pod."""


def nothing_of(selector: str, key: ArmKey) -> NoData:
    """A series that is not there."""
    return NoData(reason=f"Prometheus has no samples of {filled(selector, key)} in this window")
