"""What commands print: data on stdout, in the form that `-o` says, and words for people on stderr."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from tidegate.core.text import one_line

Data = Mapping[str, object] | Sequence[object]


class Output(StrEnum):
    """How a command prints its result."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    """The name of each thing, one a line, for `xargs` and loops."""
    MARKDOWN = "markdown"
    """The comment under a merge request."""
    JUNIT = "junit"

    @property
    def is_data(self) -> bool:
        """Whether a program reads it."""
        return self in (Output.JSON, Output.YAML)


def print_data(data: Data, output: Output) -> None:
    """One document on stdout: YAML where that is asked for, else JSON."""
    text = json.dumps(data, indent=2, default=str)
    if output is Output.YAML:
        from tidegate.core.yaml_text import yaml_text

        # By way of JSON, so that both say the same.
        text = yaml_text(json.loads(text)).removesuffix("\n")
    print(text)


def print_objects(objects: Sequence[Mapping[str, object]], output: Output) -> None:
    """Kubernetes objects: YAML documents for `kubectl apply`, their names as kubectl writes them, or JSON."""
    from tidegate.core.yaml_text import yaml_text

    if output.value == "json":
        print_data(objects, output)
    elif output.value == "name":
        say(*map(_kubectl_name, objects))
    else:
        print("".join(f"---\n{yaml_text(each)}" for each in objects), end="")


def _kubectl_name(manifest: Mapping[str, Any]) -> str:
    group = str(manifest["apiVersion"]).rpartition("/")[0]
    kind = str(manifest["kind"]).lower()
    return f"{kind}{'.' if group else ''}{group}/{manifest['metadata']['name']}"


def say(*lines: str) -> None:
    """Lines on stdout that hold words of others."""
    for line in lines:
        print(one_line(line), flush=True)
