"""What applying an object would change, told from the cluster's own answers: as it is, and as it would be."""

from __future__ import annotations

import difflib
from enum import StrEnum

from rollouts.kube.model import Json
from tidegate.core.model import Value
from tidegate.core.yaml_text import yaml_text

_BY_THE_SERVER = (
    "managedFields",
    "resourceVersion",
    "generation",
    "uid",
    "creationTimestamp",
    "selfLink",
)
"""Parts of the metadata that change by themselves."""


class State(StrEnum):
    """What the cluster says of an object."""

    SAME = "same"
    CHANGED = "changed"
    NEW = "new"
    REFUSED = "refused"
    """The API server would not take it, or we may not ask."""
    NOT_OURS = "not tidegate's"
    """It is there, and somebody else's: applying would take it over."""
    LEFT_OVER = "left over"
    """It is there, of this delivery, and no longer wanted: such as the autoscaler of another kind."""


class Difference(Value):
    """One object."""

    kind: str
    name: str
    state: State
    text: str = ""
    """Lines as `diff -u` writes them; the server's own words when it refused; whose it is, when it is not ours."""


def difference(before: Json | None, after: Json) -> Difference:
    """Between an object as it is (None when there is none) and the server's answer to a dry run."""
    kind, name = after["kind"], after["metadata"]["name"]
    now, then = ("" if each is None else yaml_text(_settled(each)) for each in (before, after))
    if now == then:
        return Difference(kind=kind, name=name, state=State.SAME)
    lines = difflib.unified_diff(now.splitlines(), then.splitlines(), "in the cluster", "as rendered", lineterm="")
    state = State.NEW if before is None else State.CHANGED
    return Difference(kind=kind, name=name, state=state, text="\n".join(lines))


def _settled(seen: Json) -> Json:
    metadata = {key: value for key, value in seen["metadata"].items() if key not in _BY_THE_SERVER}
    return {key: value for key, value in {**seen, "metadata": metadata}.items() if key != "status"}
