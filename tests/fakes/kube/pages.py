"""Lists in pages: each token belongs to one moment (API concepts, "Retrieving large results sets in chunks")."""

from __future__ import annotations

import base64
import json
from typing import Any

from fakes.kube.refusal import bad_request, expired
from fakes.kube.store import Store

Json = dict[str, Any]


class Pages:
    """The rests of lists that were begun. All pages show the moment of the first, whatever was written since."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rests: dict[str, tuple[int, list[Json], bool]] = {}

    def page(self, items: list[Json], *, limit: int, counts: bool) -> tuple[list[Json], Json]:
        """The first items, and the list's metadata; `counts` where no selector chose among them."""
        return self._cut(self._store.version, items, limit, counts=counts)

    def following(self, token: str, *, limit: int) -> tuple[list[Json], Json]:
        """The next items.

        Raises:
            Refusal: the moment was compacted meanwhile (410), or the token is none (400).
        """
        if token not in self._rests:
            raise bad_request("continue key is not valid: encoded string is malformed")
        version, rest, counts = self._rests[token]
        if version < self._store.oldest:
            raise expired("The provided continue parameter is too old to display a consistent list result.")
        return self._cut(version, rest, limit, counts=counts)

    def _cut(self, version: int, items: list[Json], limit: int, *, counts: bool) -> tuple[list[Json], Json]:
        metadata: Json = {"resourceVersion": str(version)}
        if limit and len(items) > limit:
            rest = items[limit:]
            said = {"v": "meta.k8s.io/v1", "rv": version, "start": rest[0]["metadata"]["name"], "left": len(rest)}
            token = base64.urlsafe_b64encode(json.dumps(said).encode()).decode()
            self._rests[token] = version, rest, counts
            metadata |= {"continue": token} | ({"remainingItemCount": len(rest)} if counts else {})
            items = items[:limit]
        return items, metadata
