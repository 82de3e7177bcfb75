"""A run of a WorkflowTemplate: the object that submits it, and what it says about its steps and its end. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pipelines.workflow import model as names
from rollouts.kube.resources import WORKFLOWS
from tidegate.core.errors import ExitCode
from tidegate.core.model import Json, Value
from tidegate.core.names import DELIVERY, MANAGED_BY


def workflow(template: str, namespace: str, *, version: str, delivery: str = "") -> Json:
    """The object to create; the server adds a few letters to its name.

    Args:
        template: the WorkflowTemplate's name, which is the delivery's.
        namespace: the template's.
        version: number of the model version.
        delivery: one to be carried on, whose workflow was lost; empty for a new one.
    """
    arguments = {names.VERSION: version, names.DELIVERY: delivery}
    return {
        "apiVersion": WORKFLOWS.api_version,
        "kind": WORKFLOWS.kind,
        "metadata": {
            "generateName": f"{template}-{version}-",
            "namespace": namespace,
            "labels": {
                **MANAGED_BY,
                DELIVERY: template,
                # Where the argo command and its server look for a template's workflows.
                "workflows.argoproj.io/workflow-template": template,
            },
        },
        "spec": {
            "workflowTemplateRef": {"name": template},
            "arguments": {"parameters": [{"name": name, "value": value} for name, value in arguments.items() if value]},
        },
    }


OVER = frozenset({"Succeeded", "Failed", "Error"})


class Pod(Value):
    """One try of one step."""

    id: str
    step: str
    """The step's id, or the name of what else runs: open, close, engine."""
    phase: str
    message: str = ""
    exit_code: int | None = None
    finished: str = ""
    """When, as the controller wrote it; empty while it runs."""
    warnings: tuple[str, ...] = ()
    """What the cluster said of it while it was pending, such as a Secret that is missing."""

    def __str__(self) -> str:
        code = f", exit code {self.exit_code}" if self.exit_code else ""
        return f"{self.step}: {self.phase.lower()}{code}{f' ({self.message})' if self.message else ''}"


class WorkflowState(Value):
    """A workflow at one moment."""

    name: str
    phase: str
    message: str
    pods: tuple[Pod, ...]

    @property
    def over(self) -> bool:
        """Its exit handler has ended too."""
        return self.phase in OVER

    def warned(self, warnings: Mapping[str, Iterable[str]]) -> WorkflowState:
        """The same, with what was said of its pods; by their ids."""
        pods = (pod.model_copy(update={"warnings": tuple(warnings.get(pod.id, ()))}) for pod in self.pods)
        return self.model_copy(update={"pods": tuple(pods)})

    @property
    def exit_code(self) -> ExitCode:
        """As `tidegate deliver` would have ended; only once it is over."""
        if self.phase == "Succeeded":
            return ExitCode.DELIVERED
        ended = sorted((pod for pod in self.pods if pod.exit_code), key=lambda pod: pod.finished)
        # Anyone who closed the delivery knows how it ended; where nothing was opened, the step that failed first.
        said = [pod.exit_code for pod in ended if pod.step == names.CLOSE][-1:] or [pod.exit_code for pod in ended][:1]
        return ExitCode(said[0]) if said and said[0] in list(ExitCode) else ExitCode.OUTSIDE


def workflow_state(workflow: Json) -> WorkflowState:
    """What stands in the object; a workflow that its controller has not seen yet is pending."""
    status = workflow.get("status") or {}
    nodes = (status.get("nodes") or {}).values()
    return WorkflowState(
        name=workflow["metadata"]["name"],
        phase=status.get("phase") or "Pending",
        message=status.get("message") or "",
        pods=tuple(_pod(node) for node in nodes if node.get("type") == "Pod"),
    )


def progress_lines(before: WorkflowState | None, after: WorkflowState) -> Iterator[str]:
    """A line for everything that is different."""
    known = {pod.id: pod for pod in before.pods} if before else {}
    for pod in after.pods:
        then = known.get(pod.id)
        if then is None or then.phase != pod.phase:
            yield str(pod)
        new = [said for said in pod.warnings if then is None or said not in then.warnings]
        yield from (f"{pod.step}: {pod.phase.lower()}: {said}" for said in new)
    if before is None or before.phase != after.phase:
        yield f"{after.name}: {after.phase.lower()}{f': {after.message}' if after.message else ''}"


POD_OF = "workflows.argoproj.io/workflow"
"""The label of a workflow's pods: its name."""
_NODE_OF = "workflows.argoproj.io/node-id"
"""The annotation of a workflow's pod: the id of its node in the workflow's status."""
_HINDRANCES = frozenset({"FailedScheduling", "FailedMount", "FailedAttachVolume", "Failed"})
"""Reasons of events why a pod does not begin: no node, no volume, no image or container."""
_REPEATED = ("Error: ErrImagePull", "Error: ImagePullBackOff")
"""Say once more, with less, what the event before them said."""


def node_of(pod: Json) -> str:
    """The id of the node that a pod belongs to; empty when it says none."""
    return str((pod["metadata"].get("annotations") or {}).get(_NODE_OF, ""))


def hindrances(events: Iterable[Json]) -> Iterator[str]:
    """What these events of a pod say about why it does not begin, each once."""
    said = (str(event.get("message", "")) for event in events if event.get("reason") in _HINDRANCES)
    return iter(dict.fromkeys(" ".join(each.split()) for each in said if each and not each.startswith(_REPEATED)))


def _pod(node: Mapping[str, object]) -> Pod:
    inputs, outputs = node.get("inputs") or {}, node.get("outputs") or {}
    assert isinstance(inputs, Mapping) and isinstance(outputs, Mapping), "not the nodes of a workflow"
    steps = [each["value"] for each in inputs.get("parameters") or () if each["name"] == names.STEP]
    code = outputs.get("exitCode")
    return Pod(
        id=str(node["id"]),
        step=steps[0] if steps else str(node.get("templateName", "")),
        phase=str(node.get("phase") or "Pending"),
        message=str(node.get("message") or ""),
        exit_code=int(code) if code is not None else None,
        finished=str(node.get("finishedAt") or ""),
    )
