"""What patches bring into an engine's pod, as admission policies let it in. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from pydantic import JsonValue

from tidegate.core.model import Json, Value

_NAMED_BY = {
    "secret": "secretName",
    "configMap": "name",
    "persistentVolumeClaim": "claimName",
    "csi": "driver",
}
"""By the source of a volume, the field that says which one it is."""


class PodAdditions(Value):
    """In CEL: what is said of one container `c`, one variable `e` or one volume `v`."""

    containers: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()

    def or_container(self, holds: str) -> str:
        """What has to hold of a container `c`, unless it is one of theirs."""
        return f"{' || '.join(self.containers)} || ({holds})" if self.containers else holds

    def or_variable(self, holds: str) -> str:
        """The same of a variable `e`."""
        return " || ".join((*self.variables, holds))

    def only(self, name: str) -> str:
        """There is one container of that name, and there are no others but theirs."""
        if self.containers:
            return f"variables.pod.containers.exists_one(c, c.name == {_word(name)})"
        return "variables.pod.containers.size() == 1"


def additions_of(before: Json, after: Json) -> PodAdditions:
    """What `after`, a pod's spec, has and `before` has not."""
    containers = [each for key in ("containers", "initContainers") for each in _new(before, after, key)]
    variables = [
        each
        for key in ("containers", "initContainers")
        for was in before.get(key, [])
        for now in after.get(key, [])
        if was["name"] == now["name"]
        for each in _new(was, now, "env")
    ]
    return PodAdditions(
        containers=tuple(
            f"(c.name == {_word(each['name'])} && c.image == {_word(each.get('image', ''))})" for each in containers
        ),
        variables=tuple(dict.fromkeys(_variable(each) for each in variables)),
        volumes=tuple(_volume(each) for each in _new(before, after, "volumes")),
    )


def _new(before: Json, after: Json, key: str) -> Sequence[Json]:
    names = {each["name"] for each in before.get(key) or ()}
    return [each for each in after.get(key) or () if each["name"] not in names]


def _variable(said: Json) -> str:
    parts = [f"e.name == {_word(said['name'])}"]
    source = said.get("valueFrom")
    parts.append("has(e.valueFrom)" if source else "!has(e.valueFrom)")
    for kind, which in (source or {}).items():
        parts.append(f"has(e.valueFrom.{kind})")
        if "name" in which:
            parts.append(f"e.valueFrom.{kind}.name == {_word(which['name'])}")
    return f"({' && '.join(parts)})"


def _volume(said: Json) -> str:
    name = _word(said["name"])
    return f"({' && '.join((f'v.name == {name}', *_sources(said)))})"


def _sources(said: Json) -> Iterator[str]:
    for kind, source in said.items():
        if kind == "name":
            continue
        yield f"has(v.{kind})"
        if kind in _NAMED_BY and _NAMED_BY[kind] in source:
            yield f"v.{kind}.{_NAMED_BY[kind]} == {_word(source[_NAMED_BY[kind]])}"


def _word(text: JsonValue) -> str:
    return json.dumps(text)
