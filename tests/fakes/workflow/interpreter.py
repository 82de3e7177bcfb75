"""Walks a rendered workflow as Argo does: its expressions, what it refers to, and its tasks in their order."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.core.model import Json

_TAG = re.compile(r"{{([^{}]+)}}")
_EQUAL = re.compile(r"'([^']*)' == '([^']*)'")
_NOT = re.compile(r"!(?!=)")
_MESSAGE = re.compile(r'lastRetry\.message (contains|startsWith) ("[^"]*")')


class UnresolvedError(AssertionError):
    """A tag for which nothing is known there: Argo Workflows would refuse the template, or start a pod with it."""


def filled(part: Any, known: Mapping[str, str]) -> Any:
    """The same with every tag replaced."""
    if isinstance(part, dict):
        return {key: filled(value, known) for key, value in part.items()}
    if isinstance(part, list):
        return [filled(value, known) for value in part]
    return _TAG.sub(lambda tag: _known(tag[1], known), part) if isinstance(part, str) else part


def _known(name: str, known: Mapping[str, str]) -> str:
    if name not in known:
        raise UnresolvedError(f"{name} is none of {', '.join(sorted(known))}")
    return known[name]


def holds(when: str) -> bool:
    """A `when` whose tags are filled."""
    return any(_sides(part) for part in when.split(" || "))


def _sides(comparison: str) -> bool:
    match = _EQUAL.fullmatch(comparison)
    assert match, f"not a comparison of two quoted texts: {comparison}"
    return match[1] == match[2]


def tries_again(expression: str, *, status: str, code: int, message: str = "") -> bool:
    """The `expression` of a retry strategy; `code` is -1 where no process ended. Of the language, what we use."""
    words = {"contains": lambda part: part in message, "startsWith": message.startswith}
    text = _MESSAGE.sub(r"\1(\2)", _NOT.sub(" not ", expression)).replace("||", "or").replace("&&", "and")
    text = text.replace("lastRetry.status", repr(status)).replace("asInt(lastRetry.exitCode)", str(code))
    found: bool = eval(text, {"__builtins__": {}}, words)
    return found


def texts(part: Any) -> Iterator[str]:
    """Every text in it."""
    if isinstance(part, dict):
        for value in part.values():
            yield from texts(value)
    elif isinstance(part, list):
        for value in part:
            yield from texts(value)
    elif isinstance(part, str):
        yield part


SUCCEEDED, FAILED, ERROR, SKIPPED, OMITTED = "Succeeded", "Failed", "Error", "Skipped", "Omitted"
GOOD = (SUCCEEDED, SKIPPED)
LOST = -1
"""The exit code where the main container told none."""
DELETED = "pod deleted"


@dataclass(frozen=True)
class Pod:
    """One try of one container."""

    node: str
    """Such as `deliver.wave-1(0:eu-west-1).canary-25`."""
    argv: tuple[str, ...]
    variables: Mapping[str, str]


@dataclass(frozen=True)
class Ended:
    """How a container ended."""

    code: int
    out: str = ""


Run = Callable[[Pod], Awaitable[Ended]]


@dataclass
class Node:
    """What became of a task."""

    phase: str
    result: str = ""
    code: int = 0
    message: str = ""


@dataclass
class Workflow:
    """One run of a template, and everything that happened in it."""

    uid: str
    template: Json
    arguments: Mapping[str, str]
    phase: str = "Pending"
    nodes: dict[str, Node] = field(default_factory=dict)
    pods: list[Pod] = field(default_factory=list)

    def tries(self, node: str) -> int:
        return sum(pod.node == node for pod in self.pods)

    @property
    def closed(self) -> Node:
        """What became of the exit handler."""
        return self.nodes["onExit"]


class Controller:
    """Runs workflows."""

    def __init__(self, run: Run, *, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        self._run = run
        self._sleep = sleep
        self._submitted = 0

    async def submit(self, template: Json, **arguments: str) -> Workflow:
        """As `argo submit --from workflowtemplate/NAME -p ...`, to its end."""
        workflow = self.workflow(template, **arguments)
        await self.carry(workflow)
        return workflow

    def workflow(self, template: Json, **arguments: str) -> Workflow:
        """A workflow that has not begun."""
        self._submitted += 1
        said = {each["name"]: each.get("value") for each in template["spec"]["arguments"]["parameters"]} | arguments
        missing = [name for name, value in said.items() if value is None]
        assert not missing, f"Argo Workflows refuses a workflow without {missing}"
        return Workflow(f"uid-{self._submitted}", template, {name: str(value) for name, value in said.items()})

    async def carry(self, workflow: Workflow) -> None:
        """Until its exit handler has ended; cancelled, it is as if controller and pods were gone."""
        spec = workflow.template["spec"]
        workflow.phase = "Running"
        node = await self._template(workflow, spec["entrypoint"], spec["entrypoint"], {})
        closed = await self._template(workflow, "onExit", spec["onExit"], {})
        workflow.nodes["onExit"] = closed
        workflow.phase = node.phase if closed.phase in GOOD else closed.phase

    async def _template(self, workflow: Workflow, node: str, name: str, inputs: Mapping[str, str]) -> Node:
        (template,) = (each for each in workflow.template["spec"]["templates"] if each["name"] == name)
        wanted = {each["name"] for each in template.get("inputs", {}).get("parameters", [])}
        assert wanted == set(inputs), f"{name} wants {wanted} and gets {set(inputs)}"
        known = {f"inputs.parameters.{key}": value for key, value in inputs.items()}
        known |= {f"workflow.parameters.{key}": value for key, value in workflow.arguments.items()}
        known["workflow.uid"] = workflow.uid
        if "dag" in template:
            return await self._dag(workflow, node, template["dag"]["tasks"], known)
        return await self._container(workflow, node, filled(template, known))

    async def _dag(self, workflow: Workflow, above: str, tasks: list[Json], known: Mapping[str, str]) -> Node:
        done: dict[str, Node] = {}
        running: dict[asyncio.Task[Node], str] = {}
        ahead = {task["name"]: task for task in tasks}
        try:
            while ahead or running:
                for name in [name for name, task in ahead.items() if set(task.get("dependencies", ())) <= set(done)]:
                    task, node = ahead.pop(name), f"{above}.{name}"
                    # Fail fast: nothing begins once something has failed.
                    if any(each.phase not in GOOD for each in done.values()):
                        done[name] = workflow.nodes[node] = Node(OMITTED)
                        break
                    results = {f"tasks.{key}.outputs.result": each.result for key, each in done.items()}
                    running[asyncio.create_task(self._task(workflow, node, task, {**known, **results}))] = name
                else:
                    ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    for each in ended:
                        done[running.pop(each)] = each.result()
        finally:
            for each in running:
                each.cancel()
            if running:
                await asyncio.wait(running)
        bad = next((node for node in done.values() if node.phase in (FAILED, ERROR)), None)
        return Node(bad.phase, code=bad.code) if bad else Node(SUCCEEDED)

    async def _task(self, workflow: Workflow, node: str, task: Json, known: Mapping[str, str]) -> Node:
        items = task.get("withItems")
        if items is None:
            return await self._call(workflow, node, task, known)
        calls = (
            self._call(workflow, f"{node}({at}:{item})", task, {**known, "item": item}) for at, item in enumerate(items)
        )
        found = await asyncio.gather(*calls)
        bad = next((each for each in found if each.phase not in GOOD), None)
        workflow.nodes[node] = Node(bad.phase, code=bad.code) if bad else Node(SUCCEEDED)
        return workflow.nodes[node]

    async def _call(self, workflow: Workflow, node: str, task: Json, known: Mapping[str, str]) -> Node:
        said = {each["name"]: each["value"] for each in task.get("arguments", {}).get("parameters", [])}
        if "when" in task and not holds(filled(task["when"], known)):
            found = Node(SKIPPED)
        else:
            found = await self._template(workflow, node, task["template"], filled(said, known))
        workflow.nodes[node] = found
        return found

    async def _container(self, workflow: Workflow, node: str, template: Json) -> Node:
        strategy = template["retryStrategy"]
        pause = float(strategy["backoff"]["duration"].removesuffix("s"))
        for left in range(int(strategy["limit"]), -1, -1):
            found = await self._try(workflow, node, template)
            again = tries_again(strategy["expression"], status=found.phase, code=found.code, message=found.message)
            if found.phase == SUCCEEDED or not again or not left:
                break
            await self._sleep(pause)
            pause *= strategy["backoff"]["factor"]
        return found

    async def _try(self, workflow: Workflow, node: str, template: Json) -> Node:
        """Containers before the main one first: of one that fails, Argo Workflows tells the name and no exit code."""
        for container in (*template.get("initContainers", ()), template["container"]):
            variables = {each["name"]: each["value"] for each in container["env"]}
            pod = Pod(node, (*container["command"], *container["args"]), variables)
            workflow.pods.append(pod)
            ended = await self._run(pod)
            if ended.code:
                if ended.code == LOST:
                    return Node(ERROR, code=LOST, message=DELETED)
                code = ended.code if container is template["container"] else LOST
                return Node(
                    FAILED, code=code, message=f"{container.get('name', 'main')}: Error (exit code {ended.code})"
                )
        return Node(SUCCEEDED, result=ended.out.strip())
