"""How objects are chosen and listed.

Selectors of labels and fields (Kubernetes, "Labels and Selectors"), and pages, each of one moment (API concepts,
"Retrieving large results sets in chunks").
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

from fakes.kube.refusal import bad_request
from fakes.kube.store import Store

from rollouts.kube.objects import at
from tidegate.core.model import Json

Selector = Callable[[Json], bool]


def selected(labels: str, fields: str) -> Selector:
    """What has these labels (`key=value`, or `key` with any value) and fields (`path=value`), all of them.

    Raises:
        Refusal: another kind of term, which nothing of tidegate's sends (400).
    """
    if set("!() ") & set(labels + fields):
        raise bad_request(f"unable to parse requirement: {labels} {fields}")
    by_label = [term.partition("=") for term in labels.split(",") if term]
    by_field = [term.partition("=") for term in fields.split(",") if term]

    def chosen(found: Json) -> bool:
        has = found.get("metadata", {}).get("labels") or {}
        return all(has.get(key) == value if sign else key in has for key, sign, value in by_label) and all(
            at(found, *path.split(".")) == value for path, _, value in by_field
        )

    return chosen


class Pages:
    """The rests of lists that were begun. All pages show the moment of the first, whatever was written since."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rests: dict[str, tuple[int, list[Json]]] = {}

    def page(self, items: list[Json], *, limit: int) -> tuple[list[Json], Json]:
        """The first items, and the list's metadata."""
        return self._cut(self._store.version, items, limit)

    def following(self, token: str, *, limit: int) -> tuple[list[Json], Json]:
        """The next items.

        Raises:
            Refusal: the token is none (400).
        """
        if token not in self._rests:
            raise bad_request("continue key is not valid: encoded string is malformed")
        version, rest = self._rests[token]
        return self._cut(version, rest, limit)

    def _cut(self, version: int, items: list[Json], limit: int) -> tuple[list[Json], Json]:
        metadata: Json = {"resourceVersion": str(version)}
        if limit and len(items) > limit:
            rest = items[limit:]
            said = {"v": "meta.k8s.io/v1", "rv": version, "start": rest[0]["metadata"]["name"], "left": len(rest)}
            token = base64.urlsafe_b64encode(json.dumps(said).encode()).decode()
            self._rests[token] = version, rest
            metadata["continue"] = token
            items = items[:limit]
        return items, metadata
