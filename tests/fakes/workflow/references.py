"""What a WorkflowTemplate refers to: templates that are called, parameters that are used."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rollouts.kube.model import Json

_TAG = re.compile(r"{{([^{}]+)}}")


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


def tags(part: Any) -> set[str]:
    """Everything that Argo Workflows is to put in, such as `inputs.parameters.step`."""
    return {tag for text in texts(part) for tag in _TAG.findall(text)}


def tasks(template: Json) -> list[Json]:
    found: list[Json] = template.get("dag", {}).get("tasks", [])
    return found


def reachable(spec: Json) -> set[str]:
    """The templates that a workflow comes to: from its entrypoint, and from its end."""
    by_name = {template["name"]: template for template in spec["templates"]}
    found: set[str] = set()
    ahead = [spec["entrypoint"], spec["onExit"]]
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead += [task["template"] for task in tasks(by_name[name])]
    return found


def names(part: Json | None) -> set[str]:
    """Of the parameters of `inputs` or `arguments`."""
    return {each["name"] for each in (part or {}).get("parameters", [])}
