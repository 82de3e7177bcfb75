"""What to write in a spec whose gates would not pass a healthy version in time: more time, users, copies or pairs.

A gate proposes by its own forecast; a stage has several gates, and each of its weights has a forecast. What is proposed
here is one change of the spec that helps all of them, and was planned: no step of that stage is too late with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta

from gates.traffic import Change, GateForecast
from pipelines.model import PlanStep, SpecChange, StageName
from pipelines.spec.delivery import Delivery, StageEntry
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
    told = []
    for change, text, update in _changes(spec, stage, found):
        entries = tuple(_entry_with(each, stage, update) for each in spec.stages)
        seconds = _seconds(planned(spec.model_copy(update={"stages": entries})), stage)
        if seconds is not None:
            told.append(SpecChange(change=change, line=f"{stage}: {{{text}}}", seconds_to_pass=seconds))
    return tuple(told)


def _late(step: PlanStep) -> list[GateForecast]:
    return [each for gate in step.gates for each in gate.forecasts if not each.reachable]


def _seconds(steps: Sequence[PlanStep], stage: StageName) -> float | None:
    """How long the slowest gate of the stage's steps takes; None when one is still too late."""
    asked = [step for step in steps if step.stage is stage]
    if any(_late(step) for step in asked):
        return None
    return max((gate.seconds or 0.0 for step in asked for gate in step.gates), default=0.0)


def _changes(
    spec: Delivery, stage: StageName, late: Sequence[GateForecast]
) -> Iterator[tuple[Change, str, Mapping[str, object]]]:
    """Everything that could be changed of the stage: what it is called, how it is written, and the fields."""
    if longest := _most(late, "within"):
        within = timedelta(seconds=longest)
        yield "within", f"within: {format_duration(within)}", {"within": within}
    least = _most(late, "percent")
    if least is not None and spec.canary and stage is StageName.CANARY:
        # Those of the stage that would do; where none would, the least that does.
        weights = tuple(weight for weight in spec.canary.weights if weight >= least) or (int(least),)
        yield "percent", f"weights: {list(weights)}", {"weights": weights}
    elif least is not None and spec.shadow:
        yield "percent", f"percent: {int(least)}", {"percent": int(least)}
    if pairs := _most(late, "pairs_per_second"):
        yield "pairs_per_second", f"pairs_per_second: {pairs:g}", {"pairs_per_second": pairs}


def _most(late: Sequence[GateForecast], change: Change) -> float | None:
    """What is enough for all late gates; None when one of them has no such proposal."""
    found = [next((each.value for each in gate.proposals if each.change == change), None) for gate in late]
    known = [value for value in found if value is not None]
    return max(known) if known and len(known) == len(found) else None


def _entry_with(entry: StageEntry, stage: StageName, update: Mapping[str, object]) -> StageEntry:
    if entry.name != stage:
        return entry
    settings = getattr(entry, stage).model_copy(update=dict(update))
    return entry.model_copy(update={str(stage): settings})
