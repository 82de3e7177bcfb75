"""What a watch has told so far, so that each change is told once, whatever is cut, repeated or missed.

Rules of the API server that this stands on: events of one watch come in the order of their resource versions; a
deletion carries the version at which it happened; versions of one resource can be compared as whole numbers (promised
since Kubernetes 1.35, KEP-5504, and so since etcd 3). Should a version be no number, only equality counts.
"""

from __future__ import annotations

from rollouts.kube.model import Change, ChangeKind, Json, Listed

Key = tuple[str, str]
"""Namespace and name."""


class Known:
    """The objects that a watch told, and up to which version."""

    def __init__(self) -> None:
        self.version = ""
        """A stream from here misses nothing; empty when only a new list can help."""
        self.synced = False
        """Whether a whole list was told."""
        self._left: dict[Key, Json] = {}
        """Of each object what remains when its deletion was missed: no spec and no status, since there may be many."""

    def listed(self, listed: Listed) -> list[Change]:
        """What a fresh list changes: everything at first; after a gap the difference, deletions first."""
        now = {_key(item): item for item in listed.items}
        gone = [key for key in self._left if key not in now]
        changes = [Change(kind=ChangeKind.DELETED, object=self._left.pop(key)) for key in gone]
        for item in listed.items:
            changes += self._seen(item)
        kind = ChangeKind.BOOKMARK if self.synced else ChangeKind.SYNCED
        self.version, self.synced = listed.resource_version, True
        return [*changes, _mark(kind, self.version)]

    def told(self, kind: str, item: Json) -> list[Change]:
        """What an event of the stream changes; nothing when it is a repetition.

        Raises:
            ValueError: when it is no event of a watch; nothing is taken from it.
        """
        try:
            event, version = ChangeKind(kind), item["metadata"]["resourceVersion"]
            key = ("", "") if event is ChangeKind.BOOKMARK else _key(item)
        except (KeyError, TypeError) as error:
            raise ValueError(f"an event of kind {kind} has no {error}") from error
        still = event is ChangeKind.BOOKMARK and version == self.version
        if not (still or _later(version, self.version)):
            return []
        self.version = version
        if event is ChangeKind.BOOKMARK:
            return [_mark(event, version)]
        if event is ChangeKind.DELETED:
            return [Change(kind=event, object=item)] if self._left.pop(key, None) else []
        return self._seen(item)

    def expire(self) -> None:
        """The version is too old for the server: only a new list can help."""
        self.version = ""

    def _seen(self, item: Json) -> list[Change]:
        """An object that exists: new, changed, the same, or another of the name of one whose end was missed."""
        key, before = _key(item), self._left.get(_key(item))
        if before is None:
            changes = [Change(kind=ChangeKind.ADDED, object=item)]
        elif _meta(before, "uid") != _meta(item, "uid"):
            changes = [Change(kind=ChangeKind.DELETED, object=before), Change(kind=ChangeKind.ADDED, object=item)]
        elif _meta(before, "resourceVersion") != _meta(item, "resourceVersion"):
            changes = [Change(kind=ChangeKind.MODIFIED, object=item)]
        else:
            return []
        self._left[key] = _remains(item)
        return changes


def _mark(kind: ChangeKind, version: str) -> Change:
    return Change(kind=kind, object={"metadata": {"resourceVersion": version}})


def _key(item: Json) -> Key:
    meta = item["metadata"]
    return meta.get("namespace", ""), meta["name"]


def _meta(item: Json, field: str) -> str | None:
    value = item["metadata"].get(field)
    return None if value is None else str(value)


def _remains(item: Json) -> Json:
    meta = item["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "labels", "ownerReferences")
    return {
        **{field: item[field] for field in ("apiVersion", "kind") if field in item},
        "metadata": {field: meta[field] for field in kept if field in meta},
    }


def _later(version: str, than: str) -> bool:
    """Whether a version is after another; unlike ones that are no numbers count as later."""
    if version.isdecimal() and than.isdecimal():
        return int(version) > int(than)
    return version != than
