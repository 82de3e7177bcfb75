"""What commands print: data on stdout, words for people on stderr."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.core.text import printable


def print_json(data: Mapping[str, object] | Sequence[object]) -> None:
    """One JSON document on stdout."""
    print(json.dumps(data, indent=2, default=str))


def say(text: str) -> None:
    """Text on stdout that holds words of others."""
    print(printable(text), flush=True)


def print_objects(objects: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Kubernetes objects, as `kubectl apply -f -` reads them: documents of YAML, or a list in JSON."""
    if as_json:
        print_json(objects)
        return
    # Not above: every command's help loads this module.
    from tidegate.core.yaml_text import yaml_text

    print("".join(f"---\n{yaml_text(each)}" for each in objects), end="")
