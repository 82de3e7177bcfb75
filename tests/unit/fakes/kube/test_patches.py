"""Merge patch by the table of RFC 7386, JSON patch by the rules of RFC 6902."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.kube.patches import merged, patched
from fakes.kube.refusal import Refusal


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_the_examples_of_rfc_7386(target: Any, patch: Any, result: Any) -> None:
    assert merged(target, patch) == result


@pytest.mark.parametrize(
    ("operation", "result"),
    [
        ({"op": "add", "path": "/b", "value": 1}, {"a": [1, 2], "x/y": {"~": 0}, "b": 1}),
        ({"op": "add", "path": "/a/-", "value": 3}, {"a": [1, 2, 3], "x/y": {"~": 0}}),
        ({"op": "add", "path": "/a/0", "value": 0}, {"a": [0, 1, 2], "x/y": {"~": 0}}),
        ({"op": "remove", "path": "/a/0"}, {"a": [2], "x/y": {"~": 0}}),
        ({"op": "replace", "path": "/x~1y/~0", "value": 9}, {"a": [1, 2], "x/y": {"~": 9}}),
        ({"op": "move", "from": "/a", "path": "/b"}, {"b": [1, 2], "x/y": {"~": 0}}),
        ({"op": "copy", "from": "/a/1", "path": "/b"}, {"a": [1, 2], "x/y": {"~": 0}, "b": 2}),
        ({"op": "test", "path": "/a", "value": [1, 2]}, {"a": [1, 2], "x/y": {"~": 0}}),
        ({"op": "replace", "path": "", "value": {}}, {}),
    ],
)
def test_json_patch(operation: dict[str, Any], result: Any) -> None:
    target = {"a": [1, 2], "x/y": {"~": 0}}
    assert patched(target, [operation]) == result
    assert target == {"a": [1, 2], "x/y": {"~": 0}}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/none"},
        {"op": "replace", "path": "/none", "value": 1},
        {"op": "add", "path": "/none/deeper", "value": 1},
        {"op": "add", "path": "/a/7", "value": 1},
        {"op": "test", "path": "/a", "value": [9]},
    ],
)
def test_what_does_not_fit_is_refused(operation: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as caught:
        patched({"a": [1, 2]}, [operation])
    assert (caught.value.code, caught.value.reason) == (422, "Invalid")


def test_an_unknown_operation_is_a_bad_request() -> None:
    with pytest.raises(Refusal) as caught:
        patched({}, [{"op": "merge", "path": "/a"}])
    assert caught.value.code == 400
