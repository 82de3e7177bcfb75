"""The WorkflowTemplate of a delivery: one DAG for the whole delivery, one for the steps of a region. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from hera.workflows import DAG, Parameter, Task, WorkflowTemplate
from hera.workflows.models import (
    LocalObjectReference,
    Metadata,
    Mutex,
    PodGC,
    Synchronization,
    TTLStrategy,
    WorkflowMetadata,
)

from pipelines.model import PlanStep, StageName
from pipelines.spec.workflow import account_of
from pipelines.workflow import model as names
from pipelines.workflow.containers import building, closure, deadline, opening, staging, volumes, whose
from pipelines.workflow.model import WorkflowInput
from tidegate.core.model import Json, Value
from tidegate.core.names import DELIVERY, MANAGED_BY, object_name

FIRST = (
    "apiVersion",
    "kind",
    "metadata",
    "name",
    "namespace",
    "template",
    "dependencies",
    "withItems",
    "when",
    "entrypoint",
    "onExit",
    "inputs",
    "image",
    "command",
    "args",
)
"""Keys that begin a mapping, in this order; the others follow as they are."""
LAST = ("templates", "volumes")


def in_key_order(document: Json) -> Json:
    """The same document, whatever the order of its keys was."""
    ordered: Json = _ordered(document)
    return ordered


def _ordered(part: Any) -> Any:
    if isinstance(part, list):
        return [_ordered(each) for each in part]
    if not isinstance(part, dict):
        return part
    first = [key for key in FIRST if key in part]
    last = [key for key in LAST if key in part]
    between = [key for key in part if key not in first and key not in last]
    return {key: _ordered(part[key]) for key in (*first, *between, *last)}


class TemplateStep(Value):
    """One step of a region's way, as every region goes it or as some do."""

    stage: StageName
    weight: int | None
    regions: tuple[str, ...]
    """Who has it; the others pass it by."""

    @property
    def name(self) -> str:
        """Of its task: `canary-25`."""
        return str(self.stage) if self.weight is None else f"{self.stage}-{self.weight}"

    def step_id(self, region: str) -> str:
        """As the ledger names it there."""
        return PlanStep(stage=self.stage, region=region, weight=self.weight).id


class Wave(Value):
    """Regions that go their way side by side."""

    number: int
    """From 1."""
    regions: tuple[str, ...]


def task_order(steps: Sequence[PlanStep]) -> tuple[TemplateStep, ...]:
    """A region's way: that of the region with the most steps, whose others have parts of it in the same order."""
    lanes: dict[str, list[tuple[StageName, int | None]]] = {}
    for step in steps:
        if step.region:
            lanes.setdefault(step.region, []).append((step.stage, step.weight))
    longest = max(lanes.values(), key=len)
    for lane in lanes.values():
        assert [turn for turn in longest if turn in lane] == lane, "regions go in different orders"
    return tuple(
        TemplateStep(
            stage=stage, weight=weight, regions=tuple(name for name, lane in lanes.items() if (stage, weight) in lane)
        )
        for stage, weight in longest
    )


def course(steps: Sequence[PlanStep]) -> Iterator[PlanStep | Wave]:
    """The whole way: a step that is done once, or a wave whose regions go theirs."""
    for (wave, regional), stretch in groupby(steps, key=lambda step: (step.wave, step.region is not None)):
        together = list(stretch)
        if regional:
            yield Wave(number=wave, regions=tuple(dict.fromkeys(step.region for step in together if step.region)))
        else:
            yield from together


def workflow_template(blueprint: WorkflowInput) -> Json:
    """The whole object, as `argo submit --from workflowtemplate/NAME -p version=7` wants it."""
    settings, labels = blueprint.settings, {**MANAGED_BY, DELIVERY: blueprint.name}
    build = settings.build
    keep = int(settings.keep.total_seconds())
    template = WorkflowTemplate(
        name=blueprint.name,
        namespace=blueprint.namespace,
        labels=labels,
        entrypoint=names.DELIVER,
        on_exit=names.CLOSE,
        arguments=[
            Parameter(name=names.VERSION, description="Number of the model version."),
            Parameter(name=names.DELIVERY, value="", description="Carry on this one, whose workflow was lost."),
        ],
        templates=[
            _deliver(blueprint),
            _region(blueprint),
            *([building(blueprint, build)] if build else []),
            opening(blueprint),
            staging(blueprint),
            closure(blueprint),
        ],
        volumes=volumes(blueprint),
        service_account_name=account_of(blueprint.name),
        image_pull_secrets=[LocalObjectReference(name=name) for name in settings.pull_secrets] or None,
        security_context=whose(),
        synchronization=Synchronization(mutexes=[Mutex(name=mutex(blueprint.spec.model.name))]),
        pod_gc=PodGC(strategy="OnPodSuccess"),
        pod_metadata=Metadata(labels={**MANAGED_BY, names.STEPS_OF: blueprint.name}),
        workflow_metadata=WorkflowMetadata(labels=labels),
        ttl_strategy=TTLStrategy(seconds_after_completion=keep),
    )
    rendered: Json = template.to_dict()
    return in_key_order(rendered)


def mutex(model: str) -> str:
    """What one delivery of a model holds at a time; others wait in line."""
    return object_name(f"tidegate-{model}")


def _deliver(blueprint: WorkflowInput) -> DAG:
    """One task after the other; in a wave, its regions side by side."""
    with DAG(name=names.DELIVER) as dag:
        before = Task(name=names.ENGINE, template=names.ENGINE) if blueprint.settings.build else None
        before = _after(before, Task(name=names.OPEN, template=names.OPEN))
        for each in course(blueprint.steps):
            before = _after(before, _wave(each) if isinstance(each, Wave) else _once(blueprint, each))
    return dag


def _once(blueprint: WorkflowInput, step: PlanStep) -> Task:
    name = f"{step.stage}-{step.wave}" if step.wave else str(step.stage)
    return Task(
        name=name, template=names.STAGE, arguments=_arguments(step.id, names.RESULT, _seconds(blueprint, [step]))
    )


def _wave(wave: Wave) -> Task:
    return Task(
        name=f"wave-{wave.number}",
        template=names.REGION,
        arguments={names.REGION: "{{item}}", names.DELIVERY: names.RESULT},
        with_items=list(wave.regions),
    )


def _region(blueprint: WorkflowInput) -> DAG:
    """What every region does, one turn after the other; some turns are for some regions only."""
    everywhere = blueprint.spec.regions.names
    with DAG(name=names.REGION, inputs=[Parameter(name=name) for name in (names.REGION, names.DELIVERY)]) as dag:
        before = None
        for turn in task_order(blueprint.steps):
            steps = [step for step in blueprint.steps if (step.stage, step.weight) == (turn.stage, turn.weight)]
            step_id, delivery = turn.step_id(names.own_value(names.REGION)), names.own_value(names.DELIVERY)
            task = Task(
                name=turn.name,
                template=names.STAGE,
                arguments=_arguments(step_id, delivery, _seconds(blueprint, steps)),
                when=None if turn.regions == everywhere else _is_one_of(turn),
            )
            before = _after(before, task)
    return dag


def _is_one_of(turn: TemplateStep) -> str:
    # In quotes: `eu-west-1` would be a subtraction.
    return " || ".join(f"'{names.own_value(names.REGION)}' == '{region}'" for region in turn.regions)


def _arguments(step: str, delivery: str, seconds: int) -> dict[str, str]:
    return {names.STEP: step, names.DELIVERY: delivery, names.DEADLINE: str(seconds)}


def _seconds(blueprint: WorkflowInput, steps: list[PlanStep]) -> int:
    """Of several regions' steps, the longest."""
    found = (deadline(blueprint.spec, blueprint.fleet, step, blueprint.steps) for step in steps)
    return int(max(found).total_seconds())


def _after(before: Task | None, task: Task) -> Task:
    """`task`, which waits for the one before it; one that was skipped is no obstacle."""
    if before is not None:
        task.dependencies = [before.name]
    return task
