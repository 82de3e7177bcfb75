"""What a delivery's events say to a later process: its plan, what is done, what failed, how it ended. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pipelines.events.payloads import FORMAT, Closing, Opening, StepFailure
from pipelines.model import EXIT_CODES, Ending, Plan, PlanStep, Result
from registry.model import Event, StepId
from tidegate.core.errors import NotGenuine, UsageError
from tidegate.core.model import Value
from tidegate.core.text import LONGEST, one_line


class Failed(Value):
    """A step that stopped the delivery, and what it makes of it."""

    step: str
    ending: Ending
    reason: str
    exit_code: int


def plan_of(events: Iterable[Event]) -> Plan:
    """The plan as it was when the delivery was opened; what its gates were forecast to need is left out.

    Raises:
        UsageError: no plan stands there: it was not opened to the end, or by a tidegate that kept no plans. Or a newer
            tidegate opened it, whose events this one would misread.
    """
    opening = _opening(events)
    if opening is not None and opening.format > FORMAT:
        raise UsageError(
            f"this delivery's events have format {opening.format}, and this tidegate reads {FORMAT}",
            hint="use the tidegate that opened it, or a newer one",
        )
    if opening is None or opening.challenger_version is None or opening.champion_version is None:
        raise UsageError("this delivery's ledger holds no plan", hint="deliver the version again")
    return Plan(
        name=opening.spec,
        version=opening.challenger_version,
        champion=opening.champion_version,
        regions=opening.regions,
        steps=tuple(PlanStep.model_validate(step.model_dump(exclude={"id"})) for step in opening.steps),
        engine=opening.engine,
        champion_engine=opening.champion_engine,
        resolved=opening.resolved,
    )


def spec_file_of(events: Iterable[Event]) -> str | None:
    """Where the spec lies below the kept files of the delivery; None when it was not kept."""
    opening = _opening(events)
    return opening.spec_file if opening else None


def done_steps(events: Iterable[Event]) -> frozenset[str]:
    """The ids of steps that are done and have not been undone or begun again since."""
    done: set[str] = set()
    for event in events:
        if event.kind == "done":
            done.add(event.step)
        elif event.kind in ("started", "undone", "failed"):
            done.discard(event.step)
    return frozenset(done)


def asked_to_stop(events: Iterable[Event]) -> str | None:
    """Who asked from outside that this delivery end; None when nobody did."""
    return next((event.message for event in events if event.kind == "stop"), None)


def first_failure(events: Iterable[Event]) -> Failed | None:
    """The first step that failed and was not done after all when it was tried again."""
    failures: dict[str, Failed] = {}
    for event in events:
        if event.kind == "failed" and not event.step.startswith("undo@"):
            failures.setdefault(event.step, _failed(event))
        elif event.kind == "done":
            failures.pop(event.step, None)
    return next(iter(failures.values()), None)


def outcome_of(events: Iterable[Event], delivery: str) -> Result | None:
    """How the delivery ended; None while it is open.

    Raises:
        NotGenuine: in no way that a delivery ends.
    """
    said = [event for event in events if event.step == "delivery" and event.kind == "closed"]
    if not said:
        return None
    closing = Closing.of(said[-1])
    if closing.outcome not in list(Ending):
        raise NotGenuine(
            f"delivery {delivery} ended in no way that there is: {one_line(closing.outcome)[:LONGEST]!r}",
            hint="see who wrote it: `tidegate audit verify`",
        )
    ending = Ending(closing.outcome)
    code = EXIT_CODES[ending] if closing.exit_code is None else closing.exit_code
    return Result.model_validate(
        {"delivery": delivery, "ending": ending, "reason": closing.reason, "exit_code": code},
    )


def step_of(plan: Plan, wanted: str) -> PlanStep:
    """The step with that id.

    Raises:
        UsageError: there is none; names those of its stage, or all.
    """
    found = next((step for step in plan.steps if step.id == wanted), None)
    if found is None:
        stage = StepId.parsed(wanted).stage
        near = [step.id for step in plan.steps if step.stage == stage] or [step.id for step in plan.steps]
        raise UsageError(f"`{wanted}` is no step of this delivery", hint=f"one of: {', '.join(near)}")
    return found


def missing_before(plan: Plan, step: PlanStep, done: frozenset[str]) -> list[str]:
    """The ids of steps that must be done before `step` may start and are not: in its lane, and in all before."""
    return [each.id for each in before(plan, step) if each.id not in done]


def before(plan: Plan, step: PlanStep) -> Iterator[PlanStep]:
    """Every step after which `step` comes: regions of one wave do not wait for each other."""
    for each in plan.steps[: plan.steps.index(step)]:
        parallel = step.region is not None and each.region not in (None, step.region) and each.wave == step.wave
        if not parallel:
            yield each


def _opening(events: Iterable[Event]) -> Opening | None:
    found = (event for event in events if event.step == "delivery" and event.kind == Opening.kind)
    return next((Opening.of(event) for event in found), None)


def _failed(event: Event) -> Failed:
    failure = StepFailure.of(event)
    ending = failure.ending or Ending.FAILED
    code = EXIT_CODES[ending] if failure.exit_code is None else failure.exit_code
    return Failed(step=event.step, ending=ending, reason=event.message, exit_code=code)
