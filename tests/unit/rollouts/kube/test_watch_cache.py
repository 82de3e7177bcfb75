"""What a watch knows: every change once."""

from __future__ import annotations

from typing import Any

import pytest

from rollouts.adapters.kube.watch import WatchCache
from rollouts.kube.model import ObjectList, WatchEventType


def pod(name: str, version: int, *, uid: str = "", **more: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "llm", "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, **more}


def replace(*items: dict[str, Any], version: int) -> ObjectList:
    return ObjectList(items=items, resource_version=str(version))


def known(*items: dict[str, Any], version: int) -> WatchCache:
    begun = WatchCache()
    begun.replace(replace(*items, version=version))
    return begun


def said(changes: list[Any]) -> list[tuple[str, str]]:
    return [(change.kind.value, change.object["metadata"].get("name", "")) for change in changes]


def test_a_deletion_that_was_missed_tells_who_is_gone_without_what_it_was() -> None:
    item = pod("gone", 3, spec={"nodeName": "n"}, status={"phase": "Running"})
    item["metadata"] |= {"labels": {"app": "x"}, "managedFields": [{"manager": "m"}]}
    deleted = known(item, version=9).replace(replace(version=20))[0]
    assert deleted.kind is WatchEventType.DELETED
    assert deleted.object == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "gone",
            "namespace": "llm",
            "uid": "uid-gone",
            "resourceVersion": "3",
            "labels": {"app": "x"},
        },
    }


def test_events_move_the_version_from_which_a_stream_goes_on() -> None:
    watch = known(pod("a", 3), version=7)
    assert said(watch.apply("MODIFIED", pod("a", 8))) == [("MODIFIED", "a")]
    assert said(watch.apply("ADDED", pod("b", 10))) == [("ADDED", "b")]
    assert said(watch.apply("DELETED", pod("a", 11))) == [("DELETED", "a")]
    assert watch.version == "11"
    assert said(watch.apply("BOOKMARK", {"metadata": {"resourceVersion": "400"}})) == [("BOOKMARK", "")]
    assert watch.version == "400"


def test_a_repeated_birth_does_not_wake_the_dead() -> None:
    watch = known(version=1)
    watch.apply("ADDED", pod("a", 2))
    watch.apply("DELETED", pod("a", 3))
    assert watch.apply("ADDED", pod("a", 2)) == []


def test_an_object_that_was_replaced_while_nobody_looked_ends_first() -> None:
    watch = known(pod("a", 3, uid="old"), version=3)
    assert said(watch.apply("ADDED", pod("a", 8, uid="new"))) == [("DELETED", "a"), ("ADDED", "a")]


def test_a_change_of_what_was_never_told_is_its_birth() -> None:
    assert said(known(version=1).apply("MODIFIED", pod("a", 3))) == [("ADDED", "a")]


def test_the_end_of_what_was_never_told_is_nothing() -> None:
    assert known(version=1).apply("DELETED", pod("a", 3)) == []


def test_versions_that_are_no_numbers_are_only_the_same_or_not() -> None:
    watch = known(version=1)
    item = pod("a", 2)
    item["metadata"]["resourceVersion"] = "x7"
    assert said(watch.apply("ADDED", item)) == [("ADDED", "a")]
    assert watch.apply("ADDED", item) == []


def test_a_server_that_was_restored_from_a_backup_is_believed() -> None:
    watch = known(pod("a", 900), version=1000)
    watch.invalidate()
    assert said(watch.replace(replace(pod("a", 5), version=8))) == [("MODIFIED", "a"), ("BOOKMARK", "")]
    assert said(watch.apply("MODIFIED", pod("a", 9))) == [("MODIFIED", "a")]


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        ("ADDED", {}),
        ("ADDED", {"metadata": {"resourceVersion": "5"}}),
        ("ADDED", {"metadata": None}),
        ("BOOKMARK", {"metadata": {}}),
        ("SHOUTED", pod("a", 5)),
    ],
)
def test_what_is_no_event_changes_nothing(kind: str, item: dict[str, Any]) -> None:
    watch = known(version=1)
    with pytest.raises(ValueError):
        watch.apply(kind, item)
    assert watch.version == "1"
