"""What a Workflow object says about its steps and its end. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pipelines.workflow import conventions as names
from rollouts.kube.model import Json
from tidegate.core.errors import ExitCode
from tidegate.core.model import Value

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

    def __str__(self) -> str:
        code = f", exit code {self.exit_code}" if self.exit_code else ""
        return f"{self.step}: {self.phase.lower()}{code}{f' ({self.message})' if self.message else ''}"


class Seen(Value):
    """A workflow at one moment."""

    name: str
    phase: str
    message: str
    pods: tuple[Pod, ...]

    @property
    def over(self) -> bool:
        """Its exit handler has ended too."""
        return self.phase in OVER

    @property
    def exit_code(self) -> ExitCode:
        """As `tidegate deliver` would have ended; only once it is over."""
        if self.phase == "Succeeded":
            return ExitCode.DELIVERED
        ended = sorted((pod for pod in self.pods if pod.exit_code), key=lambda pod: pod.finished)
        # Whoever closed the delivery knows how it ended; where nothing was opened, whoever failed first.
        said = [pod.exit_code for pod in ended if pod.step == names.CLOSE][-1:] or [pod.exit_code for pod in ended][:1]
        return ExitCode(said[0]) if said and said[0] in list(ExitCode) else ExitCode.OUTSIDE


def seen(workflow: Json) -> Seen:
    """What stands in the object; a workflow that its controller has not seen yet is pending."""
    status = workflow.get("status") or {}
    nodes = (status.get("nodes") or {}).values()
    return Seen(
        name=workflow["metadata"]["name"],
        phase=status.get("phase") or "Pending",
        message=status.get("message") or "",
        pods=tuple(_pod(node) for node in nodes if node.get("type") == "Pod"),
    )


def news(before: Seen | None, after: Seen) -> Iterator[str]:
    """A line for everything that is different."""
    known = {pod.id: pod.phase for pod in before.pods} if before else {}
    for pod in after.pods:
        if known.get(pod.id) != pod.phase:
            yield str(pod)
    if before is None or before.phase != after.phase:
        yield f"{after.name}: {after.phase.lower()}{f': {after.message}' if after.message else ''}"


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
