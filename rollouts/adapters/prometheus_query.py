"""Instant queries to a region's own Prometheus."""

from __future__ import annotations

import json
from urllib.parse import urlencode

from rollouts.adapters.http import Http, Reply
from rollouts.doctor.errors import QueryRefused
from rollouts.errors import Unreachable

TIMEOUT_SECONDS = 10.0
"""A query over days of a large region's series takes seconds."""


class PrometheusQuery:
    """A `Prometheus` of the doctor."""

    def __init__(self, url: str, http: Http) -> None:
        """`url` is Prometheus' own address, with a path where it is behind one; nothing is asked yet."""
        self._url = url.rstrip("/")
        self._http = http

    async def ask(self, query: str) -> tuple[float, ...]:
        """The samples of a query now: of a scalar its value, of a range the last of each series."""
        address = f"{self._url}/api/v1/query?{urlencode({'query': query})}"
        try:
            reply = await self._http.get(address, timeout_seconds=TIMEOUT_SECONDS)
        except Unreachable as error:
            # Without the question, which is longer than what a person wants to know.
            raise Unreachable(f"Prometheus at {self._url} did not answer", detail=error.detail) from error
        answer = _read(reply, self._url)
        if answer.get("status") != "success":
            raise QueryRefused(str(answer.get("error", f"status {reply.status}")))
        return _samples(answer["data"])


def _read(reply: Reply, url: str) -> dict[str, object]:
    """Prometheus' own answer, also to a query that it refuses; anything else comes from something in between."""
    try:
        answer = reply.json()
    except json.JSONDecodeError as error:
        raise Unreachable(f"{url} answered {reply.status} and no Prometheus", detail=reply.text[:200]) from error
    if not isinstance(answer, dict) or "status" not in answer:
        raise Unreachable(f"{url} answered {reply.status} and no Prometheus", detail=reply.text[:200])
    return answer


def _samples(data: object) -> tuple[float, ...]:
    assert isinstance(data, dict), "Prometheus always says of what type its result is"
    result = data["result"]
    if data["resultType"] in {"scalar", "string"}:
        return (float(result[1]),)
    values = (series.get("value") or series["values"][-1] for series in result)
    return tuple(float(value) for _, value in values)
