"""How objects are chosen and listed.

Selectors of labels and fields (Kubernetes, "Labels and Selectors"), and pages, each of one moment (API concepts,
"Retrieving large results sets in chunks").
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from fakes.kube.refusal import Refusal, bad_request
from fakes.kube.store import Store

from tidegate.core.model import Json

Selector = Callable[[Json], bool]

_SET = re.compile(r"^(?P<key>\S+)\s+(?P<word>(not)?in)\s*\((?P<values>[^)]*)\)$")
_COMMA_OUTSIDE = re.compile(r",(?![^(]*\))")

FIELDS: Mapping[str, tuple[str, ...]] = {
    "pods": ("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "status.phase"),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "reason",
        "type",
    ),
    "nodes": ("spec.unschedulable",),
    "secrets": ("type",),
    "replicasets": ("status.replicas",),
    "namespaces": ("status.phase",),
}
"""Fields besides name and namespace by which built-in kinds can be selected; custom ones have no others."""


def label_selector(text: str) -> Selector:
    """Equality and set terms, all of which must hold.

    Raises:
        Refusal: a term cannot be read (400).
    """
    terms = [_label_term(term.strip()) for term in _COMMA_OUTSIDE.split(text) if term.strip()]
    return lambda found: all(term(found.get("metadata", {}).get("labels") or {}) for term in terms)


def _label_term(term: str) -> Callable[[Mapping[str, str]], bool]:
    """One term; those that say no hold too for an object without the label, as upstream."""
    if match := _SET.match(term):
        key, values = match["key"], {value.strip() for value in match["values"].split(",")}
        if match["word"] == "in":
            return lambda has: key in has and has[key] in values
        return lambda has: has.get(key) not in values
    for sign in ("!=", "==", "="):
        if sign in term:
            key, _, value = (part.strip() for part in term.partition(sign))
            if sign == "!=":
                return lambda has: has.get(key) != value
            return lambda has: has.get(key) == value
    if " " in term:
        raise bad_request(f"unable to parse requirement: {term}")
    if term.startswith("!"):
        return lambda has: term[1:] not in has
    return lambda has: term in has


def field_selector(text: str, plural: str) -> Selector:
    """Equality terms over the few fields that the kind can be selected by.

    Raises:
        Refusal: the kind knows no such field (400), which upstream answers too.
    """
    terms = [_field_term(term.strip(), plural) for term in text.split(",") if term.strip()]
    return lambda found: all(term(found) for term in terms)


def _field_term(term: str, plural: str) -> Selector:
    sign = "!=" if "!=" in term else "==" if "==" in term else "="
    path, _, wanted = term.partition(sign)
    if path not in ("metadata.name", "metadata.namespace", *FIELDS.get(plural, ())):
        raise _unsupported(path)
    return lambda found: (_at(found, path) == wanted) is (sign != "!=")


def _at(found: Json, path: str) -> str:
    value: Any = found
    for key in path.split("."):
        value = value.get(key, "") if isinstance(value, dict) else ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _unsupported(path: str) -> Refusal:
    return bad_request(f"field label not supported: {path}")


def both(label_terms: str, field_terms: str, plural: str) -> Selector:
    """What both selectors choose."""
    by_label, by_field = label_selector(label_terms), field_selector(field_terms, plural)
    return lambda found: by_label(found) and by_field(found)


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
