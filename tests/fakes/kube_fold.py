"""What a watch says, folded into what exists; it refuses to be told anything twice or out of order."""

from __future__ import annotations

from typing import Any

from rollouts.kube.model import Change, ChangeKind

Key = tuple[str, str]


class Fold:
    """The state that a consumer of `Cluster.watch` has."""

    def __init__(self) -> None:
        self.objects: dict[Key, dict[str, Any]] = {}
        self.told: list[tuple[str, str]] = []
        """Kind and name of every change of an object."""
        self.synced = 0

    def take(self, change: Change) -> None:
        if change.kind is ChangeKind.SYNCED:
            self.synced += 1
        if change.kind in {ChangeKind.SYNCED, ChangeKind.BOOKMARK}:
            return
        meta = change.object["metadata"]
        key = meta.get("namespace", ""), meta["name"]
        before = self.objects.get(key)
        self.told.append((change.kind.value, meta["name"]))
        if change.kind is ChangeKind.ADDED:
            assert before is None, f"{key} was added twice"
            self.objects[key] = change.object
        elif change.kind is ChangeKind.MODIFIED:
            assert before is not None, f"{key} changed before it was added"
            assert meta["uid"] == before["metadata"]["uid"], f"{key} is another object"
            assert int(meta["resourceVersion"]) > int(before["metadata"]["resourceVersion"]), f"{key} was told again"
            self.objects[key] = change.object
        else:
            assert before is not None, f"{key} was deleted twice"
            assert meta["uid"] == before["metadata"]["uid"], f"{key} is another object"
            del self.objects[key]

    @property
    def versions(self) -> dict[Key, str]:
        """Which version of each object is known."""
        return {key: item["metadata"]["resourceVersion"] for key, item in self.objects.items()}
