"""What server-side apply promises for any objects and any order of writers."""

from __future__ import annotations

from typing import Any

from fakes.kube.cluster import FakeCluster
from fakes.kube.ownership import differing, from_fields, leaves, to_fields
from hypothesis import given, settings
from hypothesis import strategies as st

from rollouts.kube.resources import CONFIG_MAPS, ROLLOUTS
from tidegate.core.model import Json

DATA = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("123"), max_size=4)
WRITES = st.lists(st.tuples(st.sampled_from(["tidegate", "ops"]), DATA), min_size=1, max_size=8)
CONTAINERS = st.dictionaries(
    st.sampled_from(["engine", "proxy", "probe"]),
    st.fixed_dictionaries({}, optional={"image": st.sampled_from("12"), "tty": st.booleans()}),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.integers(0, 2), lambda inner: st.dictionaries(st.sampled_from("xyz"), inner, max_size=3), max_leaves=8
)


def note(data: dict[str, str]) -> Json:
    return {"metadata": {"name": "a"}, "data": data}


def rollout(containers: dict[str, Json]) -> Json:
    listed = [{"name": name} | rest for name, rest in containers.items()]
    return {"metadata": {"name": "a"}, "spec": {"template": {"spec": {"containers": listed}}}}


@settings(max_examples=20, deadline=None)
@given(WRITES)
def test_an_apply_by_force_always_holds_and_again_changes_nothing(writes: list[tuple[str, dict[str, str]]]) -> None:
    cluster = FakeCluster()
    for manager, data in writes:
        after = cluster.apply(CONFIG_MAPS, note(data), manager=manager, force=True)
        assert data.items() <= after.get("data", {}).items()
        assert cluster.apply(CONFIG_MAPS, note(data), manager=manager) == after


@settings(max_examples=20, deadline=None)
@given(WRITES)
def test_what_is_there_somebody_wants_as_it_is(writes: list[tuple[str, dict[str, str]]]) -> None:
    cluster = FakeCluster()
    wanted: dict[str, dict[str, str]] = {}
    for manager, data in writes:
        after = cluster.apply(CONFIG_MAPS, note(data), manager=manager, force=True)
        wanted[manager] = data
        for key, value in after.get("data", {}).items():
            assert value in {each.get(key) for each in wanted.values()}


@settings(max_examples=20, deadline=None)
@given(st.lists(CONTAINERS, min_size=1, max_size=6))
def test_a_single_applier_gets_exactly_what_it_says(history: list[dict[str, Json]]) -> None:
    cluster = FakeCluster()
    for containers in history:
        after = cluster.apply(ROLLOUTS, rollout(containers), manager="tidegate")
    spec = after["spec"].get("template", {}).get("spec", {})
    has = {
        one["name"]: {key: value for key, value in one.items() if key != "name"} for one in spec.get("containers", [])
    }
    assert has == history[-1]


@settings(max_examples=20, deadline=None)
@given(CONTAINERS)
def test_managed_fields_say_the_same_when_read_back(containers: dict[str, Json]) -> None:
    paths = set(leaves(rollout(containers)))
    assert from_fields(to_fields(paths)) == paths


@settings(max_examples=20, deadline=None)
@given(st.dictionaries(st.sampled_from("xyz"), VALUES), st.dictionaries(st.sampled_from("xyz"), VALUES))
def test_what_differs_is_found_without_looking_at_the_rest(before: Json, after: Json) -> None:
    def changes(old: Json, new: Json) -> set[tuple[tuple[str, ...], str]]:
        was, now = leaves({"spec": old}), leaves({"spec": new})
        return {(path, repr(value)) for path, value in now.items() if path not in was or was[path] != value}

    old, new = differing({"spec": before}, {"spec": after})
    assert changes(old.get("spec", {}), new.get("spec", {})) >= changes(before, after)
