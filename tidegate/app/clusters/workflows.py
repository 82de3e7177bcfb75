"""A delivery as an Argo Workflow: its objects, its start, and how far it is."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pipelines.adapters.fleets import cluster_client
from pipelines.adapters.specs import read_delivery
from pipelines.workflow.model import WorkflowInput
from pipelines.workflow.render import blueprint_of, rendered
from pipelines.workflow.runs import POD_OF, WorkflowState, hindrances, node_of, workflow, workflow_state
from rollouts.errors import FleetError, NotFound
from rollouts.kube.ports import Cluster
from rollouts.kube.resources import EVENTS, PODS, WORKFLOW_TEMPLATES, WORKFLOWS
from tidegate.app.plan import require_files_for_pods
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

LOOK_SECONDS = 2.0

AWAY_SECONDS = 600.0
"""How long the API server may be away in a row; each step of the workflow waits as long for its region."""


def watch_workflow(name: str, spec_path: Path, context: str | None, tell: Tell) -> WorkflowState:
    """Look at a workflow every two seconds until it is over.

    Raises:
        UsageError: there is none of that name.
        OutsideError: it was deleted, or the API server is away for too long.
    """
    return asyncio.run(_watch(name, workflow_input(spec_path).namespace, context, tell))


async def _watch(name: str, namespace: str, context: str | None, tell: Tell) -> WorkflowState:
    last, warnings = None, dict[str, dict[str, None]]()
    async with cluster_client(context, namespace) as client:
        # An API server that does not answer at first is rather a wrong address than one that is away.
        try:
            await client.get(WORKFLOWS, name)
        except NotFound as error:
            raise UsageError(
                f"there is no workflow {name} here", hint="see `kubectl get workflows`, or name another --context"
            ) from error
    async with cluster_client(context, namespace, retry_seconds=AWAY_SECONDS) as client:
        while True:
            try:
                found = await client.get(WORKFLOWS, name)
            except NotFound as error:
                raise OutsideError(
                    f"workflow {name} was deleted", hint="its delivery's ledger says how far it came"
                ) from error
            state = workflow_state(found)
            await _add_warnings(client, name, _pending(state) & _pending(last), warnings)
            now = state.warned(warnings)
            if now != last:
                tell(last, now)
            if now.over:
                return now
            last = now
            await asyncio.sleep(LOOK_SECONDS)


def _pending(state: WorkflowState | None) -> set[str]:
    """Ids of pods that have not begun."""
    return {pod.id for pod in state.pods if pod.phase == "Pending"} if state else set()


async def _add_warnings(client: Cluster, name: str, waiting: set[str], warnings: dict[str, dict[str, None]]) -> None:
    """What events say of pods that do not begin: the workflow's object does not change while a Secret is missing.

    Who may not read pods and events hears nothing.
    """
    with suppress(FleetError):
        for pod in (await client.list(PODS, labels=f"{POD_OF}={name}")).items if waiting else ():
            if node_of(pod) in waiting:
                events = await client.list(EVENTS, fields=f"involvedObject.name={pod['metadata']['name']}")
                warnings.setdefault(node_of(pod), {}).update(dict.fromkeys(hindrances(events.items)))
