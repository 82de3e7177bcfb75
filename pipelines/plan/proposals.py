"""What to write in a spec whose gates would not pass a healthy version in time.

A gate proposes by its own forecast; a stage has several gates, and each of its weights has a forecast. What is proposed
here is one change of the spec that helps all of them, and was planned: no step of that stage is too late with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta

from gates.traffic import Change, GateForecast, Proposal
from pipelines.model import PlanStep, SpecChange, StageName
from pipelines.spec.delivery import CanaryStage, Delivery, ShadowStage, StageEntry
from tidegate.core.units import format_duration

Planned = Callable[[Delivery], Sequence[PlanStep]]
"""The steps of a delivery by another spec."""


def proposals_for(spec: Delivery, steps: Sequence[PlanStep], planned: Planned) -> tuple[SpecChange, ...]:
    """Changes of the spec, each of which alone is enough for the first stage that is too late; none where none is."""
    late = [step for step in steps if _late(step)]
    if not late:
        return ()
    stage = late[0].stage
    found = [each for step in late if step.stage is stage for each in _late(step)]
    told = [
        change.model_copy(update={"seconds_to_pass": seconds})
        for change, wanted in _Changes(spec, stage, found).changes()
        if (seconds := _seconds(planned(wanted), stage)) is not None
    ]
    return tuple(told)


def _late(step: PlanStep) -> list[GateForecast]:
    return [each for gate in step.gates for each in gate.forecasts if not each.reachable]


def _seconds(steps: Sequence[PlanStep], stage: StageName) -> float | None:
    """How long the slowest gate of the stage's steps takes; None when one is still too late."""
    asked = [step for step in steps if step.stage in {stage, StageName.SHADOW}]
    if any(_late(step) for step in asked):
        return None
    return max((gate.seconds or 0.0 for step in asked if step.stage is stage for gate in step.gates), default=0.0)


class _Changes:
    """Everything that could be changed for the late gates of one stage."""

    def __init__(self, spec: Delivery, stage: StageName, late: Sequence[GateForecast]) -> None:
        self._spec, self._stage, self._late = spec, stage, late

    def changes(self) -> Iterator[tuple[SpecChange, Delivery]]:
        """Each with the spec that has it."""
        if longest := self._most("within"):
            within = timedelta(seconds=longest)
            yield self._of_stage("within", f"within: {format_duration(within)}", within=within)
        if self._spec.canary and self._stage is StageName.CANARY:
            yield from self._weights(self._spec.canary)
        elif self._spec.shadow:
            yield from self._mirrored()
        if pairs := self._most("pairs_per_second"):
            yield self._of_stage("pairs_per_second", f"pairs_per_second: {pairs:g}", pairs_per_second=pairs)
        if self._stage is StageName.CANARY:
            yield from self._in_shadow()
        yield from self._margins()

    def _most(self, *changes: Change) -> float | None:
        """What is enough for all late gates; None when one of them has no such proposal."""
        found = [self._value(each.proposals, changes) for each in self._late]
        known = [value for value in found if value is not None]
        return max(known) if known and len(known) == len(found) else None

    @staticmethod
    def _value(proposals: Sequence[Proposal], changes: Sequence[Change]) -> float | None:
        return next((each.value for each in proposals if each.change in changes), None)

    def _of_stage(self, change: Change, text: str, **update: object) -> tuple[SpecChange, Delivery]:
        line = f"{self._stage}: {{{text}}}"
        return SpecChange(change=change, line=line), _with_stage(self._spec, self._stage, **update)

    def _weights(self, canary: CanaryStage) -> Iterator[tuple[SpecChange, Delivery]]:
        """Those of the stage that would do; where none would, the least that does."""
        least = self._most("percent")
        if least is not None:
            weights = tuple(weight for weight in canary.weights if weight >= least) or (int(least),)
            yield self._of_stage("percent", f"weights: {list(weights)}", weights=weights)

    def _mirrored(self) -> Iterator[tuple[SpecChange, Delivery]]:
        least = self._most("percent")
        if least is not None:
            yield self._of_stage("percent", f"percent: {int(least)}", percent=int(least))

    def _in_shadow(self) -> Iterator[tuple[SpecChange, Delivery]]:
        """The late gates asked in shadow instead, where the spec has that stage and canary keeps a gate."""
        shadow, canary = self._spec.shadow, self._spec.canary
        if shadow is None or canary is None:
            return
        moved = tuple(dict.fromkeys(each.gate for each in self._late))
        left = tuple(gate for gate in canary.gates if gate not in moved)
        if not left or self._most("probe", "mirror") is None:
            return
        update, lines = self._shadow_settings(shadow, moved)
        wanted = _with_stage(_with_stage(self._spec, StageName.SHADOW, **update), StageName.CANARY, gates=left)
        line = f"shadow: {{{', '.join(lines)}}}, canary: {{gates: [{', '.join(left)}]}}"
        yield SpecChange(change="probe" if self._most("probe") else "mirror", line=line), wanted

    def _shadow_settings(self, shadow: ShadowStage, moved: Sequence[str]) -> tuple[Mapping[str, object], Sequence[str]]:
        update: dict[str, object] = {}
        proposals = [each for forecast in self._late for each in forecast.proposals]
        if pairs := [each.value for each in proposals if each.change == "probe"]:
            update["pairs_per_second"] = max(shadow.pairs_per_second, *pairs)
        if copies := [each.value for each in proposals if each.change == "mirror"]:
            update["percent"] = max(shadow.percent, *(int(each) for each in copies))
        lines = [f"{name}: {value:g}" for name, value in update.items() if value != getattr(shadow, name)]
        gates = (*shadow.gates, *(gate for gate in moved if gate not in shadow.gates))
        return update | {"gates": gates}, [*lines, f"gates: [{', '.join(gates)}]"]

    def _margins(self) -> Iterator[tuple[SpecChange, Delivery]]:
        """The margins of all late gates, as wide as the one that needs most."""
        if self._most("margin") is None:
            return
        gates, lines = self._spec.gates, list[str]()
        for name in dict.fromkeys(each.gate for each in self._late):
            margins = [
                each for forecast in self._late if forecast.gate == name for each in forecast.proposals if each.setting
            ]
            widest = max(margins, key=lambda each: each.value)
            settings = getattr(gates, name).model_copy(update={widest.setting: widest.value})
            gates = gates.model_copy(update={name: settings})
            lines.append(f"{name}: {{{widest.setting}: {widest.written}}}")
        wanted = self._spec.model_copy(update={"gates": gates})
        yield SpecChange(change="margin", line=f"gates: {{{', '.join(lines)}}}"), wanted


def _with_stage(spec: Delivery, stage: StageName, **update: object) -> Delivery:
    """The spec with other settings of one stage."""
    return spec.model_copy(update={"stages": tuple(_entry_with(each, stage, update) for each in spec.stages)})


def _entry_with(entry: StageEntry, stage: StageName, update: Mapping[str, object]) -> StageEntry:
    if entry.name != stage:
        return entry
    settings = getattr(entry, stage).model_copy(update=dict(update))
    return entry.model_copy(update={str(stage): settings})
