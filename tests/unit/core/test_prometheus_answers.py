"""What a Prometheus' answer says of itself: of its gaps, and of nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes.services.http import page

from tidegate.core.adapters.prometheus import InstantResult, PrometheusClient, PrometheusUnreachable

VECTOR = {"resultType": "vector", "result": [{"metric": {"a": "b"}, "value": [1, "2"]}]}
STORE = "receive series from sidecar-b:10901: rpc error: code = Unavailable\ndesc = connection refused"
INFO = 'PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: "x" (1:6)'
MIXED = "PromQL warning: encountered a mix of histograms and floats for aggregation (1:1)"


def asked(body: Any) -> InstantResult:
    with page(lambda: json.dumps(body)) as address:
        return PrometheusClient(f"http://{address}", timeout_seconds=5).query("x")


def success(data: Any = VECTOR, **more: Any) -> dict[str, Any]:
    return {"status": "success", "data": data, **more}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            success(warnings=[STORE]),
            "only in part: receive series from sidecar-b:10901: rpc error: code = Unavailable d",
        ),
        (success(warnings=[INFO, MIXED]), "only in part: PromQL warning: encountered a mix"),
        (success(warnings="a store is away"), "only in part: a store is away"),
        (success(isPartial=True), "only in part: isPartial: true"),
        (success(None), "no result of a query"),
        (success([]), "no result of a query"),
        (success({"resultType": "matrix"} | {"result": [{"metric": {}, "values": [[1, None]]}]}), "no result"),
        (success({"resultType": "vector", "result": [None]}), "no result of a query"),
        (success({"resultType": "scalar", "result": None}), "no result of a query"),
        ([], "and no Prometheus"),
        (None, "and no Prometheus"),
    ],
)
def test_an_answer_in_part_and_one_that_is_none_are_errors_of_the_source(body: Any, told: str) -> None:
    with pytest.raises(PrometheusUnreachable, match=told) as caught:
        asked(body)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("more", [{}, {"infos": [INFO]}, {"warnings": [INFO]}, {"warnings": None, "isPartial": False}])
def test_remarks_are_harmless(more: dict[str, Any]) -> None:
    assert [each.value for each in asked(success(**more)).series] == [(1, 2)]


@pytest.mark.parametrize("kind", ["vector", "matrix"])
def test_null_is_nothing_found(kind: str) -> None:
    assert asked(success({"resultType": kind, "result": None})) == InstantResult(kind, [])


def test_one_that_is_away_is_told_in_plain_words() -> None:
    with pytest.raises(PrometheusUnreachable) as caught:
        PrometheusClient("http://127.0.0.1:9", timeout_seconds=5).query("x")
    assert caught.value.detail == "Connection refused"
