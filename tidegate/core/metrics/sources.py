"""`metrics.sources` of a spec: where each signal is read, and which series are of which version."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from tidegate.core.metrics.model import (
    TIMES,
    VERSION_PLACE,
    ArmLabels,
    LabelName,
    MetricSignal,
    RequestSeries,
    SourceNames,
    TimeSeries,
)
from tidegate.core.metrics.presets import PRESETS, Preset, PresetName, presets_with
from tidegate.core.model import Loc, SpecConflict, SpecModel

OWN_LABELS = ("service", "region", "role", "version")
"""What our own scrape configuration puts on every series of an engine."""
_BY_HAND = (MetricSignal.REQUESTS, *TIMES)
_SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$])")


def literal(value: str) -> str:
    """A regular expression that fits this text alone, without the escapes that RE2 has no need of."""
    return _SPECIAL.sub(r"\\\1", value)


class MetricSource(SourceNames):
    """One kind of series in a Prometheus; what it says by hand goes before its preset."""

    preset: PresetName | None = None
    signals: tuple[MetricSignal, ...] = ()
    """What is read of it; everything that it has when absent."""
    arms: ArmLabels | None = None
    """Absent with preset vllm for engines that tidegate's own monitors scrape."""
    region: LabelName | None = None
    """The label that holds the region's name; absent where each region has a Prometheus of its own."""
    pod: LabelName | None = None
    """The label that tells the engines of an arm apart: their spread weakens evidence. Not a gateway's own pod."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """A source without a metric, or whose arms nobody can tell apart."""
        if not self._all:
            names = ", ".join(PresetName)
            yield SpecConflict((), "no metric", f"a `preset` ({names}), or metrics at {', '.join(_BY_HAND)}")
            return
        for place, signal in enumerate(self.signals):
            if signal not in self._all:
                found = f"{signal}, which this source does not have"
                yield SpecConflict(("signals", place), found, f"one of {', '.join(self._all)}")
        yield from self._around_arms()

    def _around_arms(self) -> Iterator[SpecConflict]:
        if self.arms is None:
            if not self.has_own_labels:
                yield SpecConflict(("arms",), "nothing", "the values of a label: {stable: VALUE, canary: VALUE}")
            return
        if not self.arm_label:
            yield SpecConflict(("arms", "label"), "nothing", "the label that tells stable from canary")
        if self.arms.stable == self.arms.canary and VERSION_PLACE not in self.arms.canary:
            expected = f"another value than stable's, or {VERSION_PLACE} in both"
            yield SpecConflict(("arms", "canary"), f"'{self.arms.canary}'", expected)

    @property
    def _preset(self) -> Preset | None:
        return PRESETS[self.preset] if self.preset else None

    @property
    def _all(self) -> tuple[MetricSignal, ...]:
        """What it could tell."""
        of_preset = self._preset.signals if self._preset else ()
        return tuple(each for each in MetricSignal if each in of_preset or getattr(self, each, None) is not None)

    @property
    def told(self) -> tuple[MetricSignal, ...]:
        """What is read of it."""
        return tuple(each for each in self._all if not self.signals or each in self.signals)

    @property
    def has_own_labels(self) -> bool:
        """Whether its series have the labels of our own scrape configuration."""
        return self.arms is None and self.preset is PresetName.VLLM

    @property
    def arm_label(self) -> str:
        """The label that tells arms apart; empty where it is not known, or where ours do."""
        said = self.arms.label if self.arms else None
        return said or (self._preset.label if self._preset else "")

    @property
    def names_roles(self) -> bool:
        """Whether the label's value says stable or canary whatever versions they are."""
        return self.arms is None or VERSION_PLACE not in self.arms.stable + self.arms.canary

    @property
    def region_label(self) -> str:
        """Empty where no label holds the region."""
        return self.region or ("region" if self.has_own_labels else "")

    @property
    def pod_label(self) -> str:
        """Empty where engines of an arm are not told apart."""
        return self.pod or (self._preset.pod if self._preset else "")

    @property
    def matchers(self) -> Mapping[str, str]:
        """What all of its series have, as regular expressions."""
        return {**(self._preset.names.match if self._preset else {}), **self.match}

    @property
    def request_series(self) -> RequestSeries | None:
        """None where its requests are not read."""
        if MetricSignal.REQUESTS not in self.told:
            return None
        return self.requests or (self._preset.names.requests if self._preset else None)

    def time_series(self, signal: MetricSignal) -> TimeSeries | None:
        """The histogram of one of `TIMES`; None where it is not read here."""
        if signal not in self.told:
            return None
        by_hand: TimeSeries | None = getattr(self, signal)
        return by_hand or (getattr(self._preset.names, signal) if self._preset else None)

    def is_vllms_own(self, signal: MetricSignal) -> bool:
        """Whether the signal is read under the name that vLLM gives it."""
        return self.preset is PresetName.VLLM and getattr(self, signal, None) is None

    def arm_of(self, role: str, version: str) -> Mapping[str, str]:
        """The label by which an arm is known, with its value; `version` may be a place to be filled later."""
        if self.arms is None:
            # An engine does not know that what it answers are copies.
            return {"role": "canary" if role == "shadow" else role, "version": version}
        # Who counts copies apart says so; else they are the canary's.
        values = {"stable": self.arms.stable, "shadow": self.arms.shadow or self.arms.canary}
        return {self.arm_label: values.get(role, self.arms.canary).replace(VERSION_PLACE, version)}

    def labels_of(self, *, service: str, region: str, role: str, version: str) -> Mapping[str, str]:
        """By which an arm's series are selected, besides `matchers`; what is empty is not asked."""
        ours = {"service": service} if self.has_own_labels and service else {}
        place = {self.region_label: region} if self.region_label and region else {}
        return {**ours, **place, **self.arm_of(role, version)}

    @property
    def roles(self) -> Mapping[str, str]:
        """Roles by the values that say them; none where values are versions, or where ours say it."""
        if self.arms is None or not self.names_roles:
            return {}
        return {self.arms.stable: "stable", self.arms.canary: "canary"}

    @property
    def of_arms(self) -> Mapping[str, str]:
        """What both arms have, as a regular expression; nothing where any version may be one."""
        values = "|".join(literal(value) for value in self.roles)
        return {self.arm_label: values} if self.roles else {}

    @property
    def title(self) -> str:
        """For people, with what it tells."""
        return f"{self.preset or 'by hand'}: {', '.join(self.told)}"


class MetricNames(SpecModel):
    """Whose metrics are read."""

    sources: tuple[MetricSource, ...] = ()
    """Each signal is read from the first that has it; without any, everything has the names of vLLM, or of Envoy in
    front of the engines of this machine, with the labels of tidegate's own monitors."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """A source of which nothing is read, because others before it tell everything."""
        for place, source in enumerate(self.sources):
            if source.told and all(source_of(self.sources, signal) is not source for signal in source.told):
                found = f"a source of which nothing is read ({source.title})"
                yield SpecConflict(("sources", place), found, "something that no source before it has")


def source_of(sources: Sequence[MetricSource], signal: MetricSignal) -> MetricSource | None:
    """The first that tells it."""
    return next((source for source in sources if signal in source.told), None)


def untold(sources: Sequence[MetricSource], signal: MetricSignal, where: Loc) -> Iterator[SpecConflict]:
    """What is wrong when something at `where` asks a signal that no source tells; nothing where there are no sources.

    Without any, everything has the names of vLLM and of our own scrape configuration.
    """
    if not sources or source_of(sources, signal):
        return
    there = "; ".join(source.title for source in sources)
    expected = f"a source with preset {' or '.join(presets_with(signal))}"
    if signal in _BY_HAND:
        expected += f", or its metric by hand at metrics.sources[{len(sources) - 1}].{signal}"
    yield SpecConflict(where, f"{signal}, which no source of `metrics.sources` has ({there})", expected)
