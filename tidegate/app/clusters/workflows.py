"""A delivery as an Argo Workflow: its objects, its start, and how far it is."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path

from pipelines.workflow.model import WorkflowInput
from pipelines.workflow.render import blueprint_of, rendered
from pipelines.workflow.runs import POD_OF, WorkflowState, hindrances, node_of, workflow, workflow_state
from rollouts.errors import FleetError, NotFound
from rollouts.kube.model import WatchEventType
from rollouts.kube.ports import Cluster
from rollouts.kube.resources import EVENTS, PODS, WORKFLOW_TEMPLATES, WORKFLOWS
from tidegate.app.plan import require_files_for_pods
from tidegate.app.wiring.fleets import cluster_client
from tidegate.app.wiring.specs import read_delivery
from tidegate.core.errors import OutsideError, UsageError
from tidegate.core.model import Json


def render_workflow(spec_path: Path) -> Sequence[Json]:
    """The WorkflowTemplate and what it needs around it; talks to nobody.

    Raises:
        SpecError: when the spec is wrong.
        UsageError: it describes no workflow.
    """
    return rendered(workflow_input(spec_path))


def workflow_input(spec_path: Path) -> WorkflowInput:
    """What the workflow of that spec is made of.

    Raises:
        SpecError: when the spec is wrong.
        UsageError: it describes no workflow.
    """
    return blueprint_of(read_delivery(spec_path), spec_path)


_VERSION = re.compile(r"[1-9][0-9]*")


@dataclass(frozen=True)
class SubmitOptions:
    """Which version, by which delivery, in which cluster."""

    version: str
    delivery: str
    apply: bool
    context: str | None
    state: Path
    tracking_uri: str | None
    """The registry as it is reached from here; nobody is asked when it is not known."""


@dataclass(frozen=True)
class SubmittedWorkflow:
    """Where it can be watched."""

    name: str
    namespace: str


def submit_workflow(spec_path: Path, asked: SubmitOptions) -> SubmittedWorkflow:
    """Create the workflow.

    Raises:
        UsageError: no such version, its files are out of the pods' reach, or the template is not there.
    """
    if not _VERSION.fullmatch(asked.version):
        raise UsageError(f"--version: found {asked.version!r}; expected the number of a model version")
    blueprint = workflow_input(spec_path)
    if asked.tracking_uri:
        require_files_for_pods(blueprint.spec, asked.version, asked.state, asked.tracking_uri)
    return SubmittedWorkflow(asyncio.run(_submit(blueprint, asked)), blueprint.namespace)


async def _submit(blueprint: WorkflowInput, asked: SubmitOptions) -> str:
    async with cluster_client(asked.context, blueprint.namespace) as client:
        if asked.apply:
            for each in rendered(blueprint):
                await client.apply(each)
        else:
            await _require_template(client, blueprint)
        wanted = workflow(blueprint.name, blueprint.namespace, version=asked.version, delivery=asked.delivery)
        created = await client.create(WORKFLOWS, wanted)
    return str(created["metadata"]["name"])


async def _require_template(client: Cluster, blueprint: WorkflowInput) -> None:
    try:
        await client.get(WORKFLOW_TEMPLATES, blueprint.name)
    except NotFound as error:
        raise UsageError(
            f"there is no WorkflowTemplate {blueprint.name} in the namespace {blueprint.namespace}",
            hint="--apply brings it there",
        ) from error


Tell = Callable[[WorkflowState | None, WorkflowState], None]
"""Hears of each change: what was before, and what is now."""


def watch_workflow(name: str, spec_path: Path, context: str | None, tell: Tell) -> WorkflowState:
    """Follow a workflow until it is over.

    Raises:
        UsageError: there is none of that name.
        OutsideError: it was deleted, or the watch was lost.
    """
    return asyncio.run(_watch(name, workflow_input(spec_path).namespace, context, tell))


async def _watch(name: str, namespace: str, context: str | None, tell: Tell) -> WorkflowState:
    async with cluster_client(context, namespace) as client:
        return await _follow(client, name, tell)


async def _follow(client: Cluster, name: str, tell: Tell) -> WorkflowState:
    progress = _Progress(tell)
    warnings = asyncio.create_task(_tell_warnings(client, name, progress))
    try:
        return await _until_over(client, name, progress)
    finally:
        warnings.cancel()
        await asyncio.wait([warnings])


async def _until_over(client: Cluster, name: str, progress: _Progress) -> WorkflowState:
    async with aclosing(client.watch(WORKFLOWS, fields=f"metadata.name={name}")) as changes:
        async for change in changes:
            if change.kind is WatchEventType.DELETED:
                raise OutsideError(f"workflow {name} was deleted", hint="its delivery's ledger says how far it came")
            if change.kind is WatchEventType.SYNCED and progress.last is None:
                raise UsageError(
                    f"there is no workflow {name} here", hint="see `kubectl get workflows`, or name another --context"
                )
            if change.kind not in (WatchEventType.ADDED, WatchEventType.MODIFIED):
                continue
            now = progress.goes_on(workflow_state(change.object))
            if now.over:
                return now
    raise OutsideError(f"lost the watch on workflow {name}", hint="the workflow goes on: run the command again")


class _Progress:
    """What is known of one workflow, from its own object and from events of its pods."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._warnings: dict[str, dict[str, None]] = {}
        self.last: WorkflowState | None = None

    @property
    def pending(self) -> frozenset[str]:
        """Ids of pods that have not begun."""
        return frozenset(pod.id for pod in self.last.pods if pod.phase == "Pending") if self.last else frozenset()

    def goes_on(self, now: WorkflowState) -> WorkflowState:
        """Tell what is new."""
        now = now.warned(self._warnings)
        self._tell(self.last, now)
        self.last = now
        return now

    def warn(self, pod: str, said: Iterable[str]) -> None:
        """Tell what has not been told of that pod before; nothing once it has begun."""
        if self.last is not None and pod in self.pending:
            self._warnings.setdefault(pod, {}).update(dict.fromkeys(said))
            self.goes_on(self.last)


_LOOK_SECONDS = 3.0
"""Between two looks at pods that do not begin: the workflow's object does not change while a Secret is missing."""


async def _tell_warnings(client: Cluster, name: str, progress: _Progress) -> None:
    """Until it is cancelled. Who may not read pods and events hears nothing, and the watch goes on."""
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        if not progress.pending:
            continue
        with suppress(FleetError):
            for pod in (await client.list(PODS, labels=f"{POD_OF}={name}")).items:
                if node_of(pod) in progress.pending:
                    events = await client.list(EVENTS, fields=f"involvedObject.name={pod['metadata']['name']}")
                    progress.warn(node_of(pod), hindrances(events.items))
