"""Instant queries to a real Prometheus, as the doctor asks them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from fakes.services.prometheus import prometheus

from rollouts.adapters.prometheus_query import PrometheusQuery
from rollouts.errors import QueryRefused, Unreachable


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with prometheus(tmp_path_factory.mktemp("prometheus")) as address:
        yield address


async def asked(url: str, query: str) -> tuple[float, ...]:
    return await PrometheusQuery(url).ask(query)


async def test_a_series_and_a_scalar_have_samples(url: str) -> None:
    assert await asked(url, 'vector(2) or label_replace(vector(3), "a", "b", "", "")') == (2.0, 3.0)
    assert await asked(url, "4") == (4.0,)
    assert math.isnan((await asked(url, "vector(0) / 0"))[0])


async def test_what_nobody_exports_has_none(url: str) -> None:
    assert await asked(url, "litellm_requests_total") == ()
    assert await asked(url, 'count({__name__="litellm_requests_total"})') == ()


async def test_what_is_no_promql_is_refused_in_its_own_words(url: str) -> None:
    with pytest.raises(QueryRefused, match="parse error"):
        await asked(url, "sum(rate(")


async def test_something_else_at_its_address_is_no_prometheus(url: str) -> None:
    with pytest.raises(Unreachable, match="and no Prometheus"):
        await asked(f"{url}/graph", "up")


async def test_nobody_at_its_address() -> None:
    with pytest.raises(Unreachable):
        await asked("http://127.0.0.1:9", "up")
