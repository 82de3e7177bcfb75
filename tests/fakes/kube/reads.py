"""How objects are chosen, listed and watched.

Selectors of labels and fields (Kubernetes, "Labels and Selectors"); pages, each of one moment (API concepts,
"Retrieving large results sets in chunks"); and the events that a watcher gets, in order, until the server ends the
watch ("Efficient detection of changes").
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from fakes.clock import Time
from fakes.kube.refusal import Refusal, bad_request, expired
from fakes.kube.store import Event, Kind, Store

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
            Refusal: the moment was compacted meanwhile (410), or the token is none (400).
        """
        if token not in self._rests:
            raise bad_request("continue key is not valid: encoded string is malformed")
        version, rest = self._rests[token]
        if version < self._store.oldest:
            raise expired("The provided continue parameter is too old to display a consistent list result.")
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


BOOKMARK_SECONDS = 60.0
"""How often a watch that allows it is told how far it is (`bookmarkFrequency` of the watch cache)."""

MIN_TIMEOUT_SECONDS = 1800.0
"""When the server ends a watch that asked for no `timeoutSeconds` (`--min-request-timeout`; upstream up to twice)."""


class Watch:
    """Events since a version, of one kind and namespace.

    What begins to match the selectors is ADDED and what matches no more is DELETED, whatever happened to it.
    """

    def __init__(
        self,
        store: Store,
        time: Time,
        kind: Kind,
        *,
        namespace: str,
        chosen: Selector,
        since: str = "",
        bookmarks: bool = False,
        timeout: float | None = None,
    ) -> None:
        self._store = store
        self._time = time
        self._kind = kind
        self._namespace = namespace
        self._chosen = chosen
        self._bookmarks = bookmarks
        self._timeout = timeout or MIN_TIMEOUT_SECONDS
        self._ready: deque[Json] = deque()
        self._woken = asyncio.Event()
        self._ended = False
        self._seen = store.version
        self._begin(since)
        self._forget = store.listen(self._hear)

    def end(self) -> None:
        """Cut it; what was not read yet is lost."""
        self._ended = True
        self._forget()
        self._ready.clear()
        self._woken.set()

    def tell(self, event: Json) -> None:
        """Send something of one's own, such as the ERROR event of a version that expired."""
        self._ready.append(event)
        self._woken.set()

    async def events(self) -> AsyncIterator[Json]:
        """Until the timeout that the watcher asked for, or a cut."""
        cancels = [self._time.call_later(self._timeout, self.end)]
        if self._bookmarks:
            cancels.append(self._next_bookmark())
        try:
            while not self._ended or self._ready:
                while self._ready:
                    event = self._ready.popleft()
                    yield event
                    if event["type"] == "ERROR":
                        return
                self._woken.clear()
                if not self._ended:
                    await self._time.until(self._woken)
        finally:
            self.end()
            for cancel in cancels:
                cancel()

    def _begin(self, since: str) -> None:
        """No version or 0: everything that exists is told as ADDED first. A version: what came after it.

        Raises nothing: too old a version is an ERROR event in a stream that began well, as the watch cache does it.
        """
        if since in ("", "0"):
            for found in self._store.all(self._kind, self._namespace):
                if self._chosen(found):
                    self._ready.append({"type": "ADDED", "object": found})
        elif int(since) < self._store.oldest:
            gone = expired(f"too old resource version: {since} ({self._store.oldest})")
            self._ready.append({"type": "ERROR", "object": gone.status()})
        else:
            for event in self._store.since(int(since)):
                self._hear(event)

    def _hear(self, event: Event) -> None:
        self._seen = event.version
        if event.kind.key != self._kind.key or (self._namespace and event.namespace != self._namespace):
            return
        matched = event.before is not None and self._chosen(event.before)
        matches = event.change != "DELETED" and self._chosen(event.after)
        if matches:
            self.tell({"type": "MODIFIED" if matched else "ADDED", "object": event.after})
        elif matched and event.before is not None:
            # What matches no more is told as it last did, under the version of the change (`convertToWatchEvent`).
            last = event.before["metadata"] | {"resourceVersion": event.after["metadata"]["resourceVersion"]}
            self.tell({"type": "DELETED", "object": event.before | {"metadata": last}})

    def bookmark(self) -> None:
        """Tell how far this watch is: an object with a version and nothing else."""
        body = {
            "apiVersion": self._kind.api_version,
            "kind": self._kind.kind,
            "metadata": {"resourceVersion": str(self._store.version), "creationTimestamp": None},
        }
        self.tell({"type": "BOOKMARK", "object": body})

    def _next_bookmark(self) -> Any:
        def due() -> None:
            if not self._ended:
                self.bookmark()
                self._next_bookmark()

        return self._time.call_later(BOOKMARK_SECONDS, due)
