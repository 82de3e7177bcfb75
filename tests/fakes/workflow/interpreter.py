"""Reads a rendered workflow as Argo Workflows does: what its tags refer to, its steps in their order, its retries.

That Argo Workflows itself runs it so is shown on real clusters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tidegate.core.model import Json

_TAG = re.compile(r"{{([^{}]+)}}")
_EQUAL = re.compile(r"'([^']*)' == '([^']*)'")
_NOT = re.compile(r"!(?!=)")
_MESSAGE = re.compile(r'lastRetry\.message (contains|startsWith) ("[^"]*")')

FAILED, ERROR = "Failed", "Error"
LOST = -1
"""The exit code where the main container told none."""
DELETED = "pod deleted"


def filled(part: Any, known: Mapping[str, str]) -> Any:
    """The same with every tag replaced; one of which nothing is known, Argo Workflows would refuse."""
    if isinstance(part, dict):
        return {key: filled(value, known) for key, value in part.items()}
    if isinstance(part, list):
        return [filled(value, known) for value in part]
    return _TAG.sub(lambda tag: known[tag[1]], part) if isinstance(part, str) else part


def holds(when: str) -> bool:
    """A `when` whose tags are filled."""
    sides = [_EQUAL.fullmatch(part) for part in when.split(" || ")]
    assert all(sides), f"not comparisons of two quoted texts: {when}"
    return any(match and match[1] == match[2] for match in sides)


def tries_again(expression: str, *, status: str, code: int, message: str = "") -> bool:
    """The `expression` of a retry strategy; `code` is -1 where no process ended. Of the language, what we use."""
    words = {"contains": lambda part: part in message, "startsWith": message.startswith}
    text = _MESSAGE.sub(r"\1(\2)", _NOT.sub(" not ", expression)).replace("||", "or").replace("&&", "and")
    text = text.replace("lastRetry.status", repr(status)).replace("asInt(lastRetry.exitCode)", str(code))
    found: bool = eval(text, {"__builtins__": {}}, words)
    return found


def texts(part: Any) -> Iterator[str]:
    """Every text in it."""
    if isinstance(part, dict | list):
        for value in part.values() if isinstance(part, dict) else part:
            yield from texts(value)
    elif isinstance(part, str):
        yield part


def commands(template: Json) -> Iterator[list[str]]:
    """What containers run, of any step."""
    for each in template["spec"]["templates"]:
        for container in (*each.get("initContainers", ()), *filter(None, [each.get("container")])):
            words = [*container["command"], *container["args"]]
            yield [_TAG.sub(lambda tag: "build" if tag[1].endswith(".step") else "7", word) for word in words]


def steps_in(workflow: Json) -> dict[str, set[str]]:
    """Every step that is run, with those that have ended when it begins."""
    spec = workflow["spec"]
    templates = {each["name"]: each for each in spec["templates"]}
    anywhere = {f"workflow.parameters.{each['name']}": "7" for each in spec["arguments"]["parameters"]}
    anywhere["workflow.uid"] = "uid-1"

    def walk(name: str, given: Mapping[str, str], before: set[str]) -> dict[str, set[str]]:
        template, known = templates[name], {f"inputs.parameters.{key}": value for key, value in given.items()}
        wanted = {each["name"] for each in template.get("inputs", {}).get("parameters", ())}
        assert wanted == set(given), f"{name} wants {wanted} and gets {set(given)}"
        if "dag" not in template:
            filled({key: part for key, part in template.items() if key != "retryStrategy"}, anywhere | known)
            return {given["step"]: before} if "step" in given else {}
        found: dict[str, set[str]] = {}
        ended: dict[str, set[str]] = {}
        for task in template["dag"]["tasks"]:
            first = before.union(*(ended[each] for each in task.get("dependencies", ())))
            here: dict[str, set[str]] = {}
            for item in task.get("withItems", ("",)):
                results = {f"tasks.{each}.outputs.result": "delivery-1" for each in ended}
                seen = anywhere | known | results | {"item": item}
                if holds(filled(task.get("when", "'' == ''"), seen)):
                    said = task.get("arguments", {}).get("parameters", ())
                    here |= walk(task["template"], {each["name"]: filled(each["value"], seen) for each in said}, first)
            found |= here
            ended[task["name"]] = first | set(here)
        return found

    walk(spec["onExit"], {}, set())
    return walk(spec["entrypoint"], {}, set())
