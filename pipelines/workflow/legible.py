"""Puts what Hera made into the order in which people read it. Pure."""

from __future__ import annotations

from typing import Any

from rollouts.kube.model import Json

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


def in_our_order(document: Json) -> Json:
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
