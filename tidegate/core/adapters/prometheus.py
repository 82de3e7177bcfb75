"""Prometheus' query API, for evidence of gates, counts of requests, and the doctor.

It blocks, and on an event loop it is called in a thread of its own (`tidegate.core.threads`): the loop resolves names
in a few shared threads, and those that wait for a Prometheus that is away would hold up the requests of a rollback.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

import httpx

from tidegate.core.errors import OutsideError


class PrometheusUnreachable(OutsideError):
    """Nothing at its address answers, or something that is no Prometheus."""


class PrometheusRefused(OutsideError):
    """It cannot evaluate the query; `detail` has its own words."""


class InstantResult(NamedTuple):
    """The answer to an instant query, as the API words it."""

    kind: str
    """`vector`, `matrix`, `scalar` or `string`."""
    result: list[Any]


class PrometheusClient:
    """Asks one Prometheus; every answer is of one evaluation time. Nothing is asked twice: callers ask again anyway."""

    def __init__(self, url: str, *, timeout_seconds: float) -> None:
        """`url` is Prometheus' own address, with a path where it is behind one; nothing is asked yet."""
        self._url = url.rstrip("/")
        self._timeout_seconds = timeout_seconds
        # Made once: reading the authorities takes longer than a query.
        self._verify = httpx.create_ssl_context(trust_env=False) if url.startswith("https:") else False

    def query(self, query: str, at: datetime | None = None) -> InstantResult:
        """The result of an instant query, of now without `at`.

        Raises:
            PrometheusUnreachable, PrometheusRefused: there is none.
        """
        answer = self._answer({"query": query} | ({"time": str(at.timestamp())} if at else {}))
        if answer["status"] != "success":
            raise PrometheusRefused(f"Prometheus at {self._url} refused {query}", detail=str(answer.get("error")))
        return InstantResult(answer["data"]["resultType"], answer["data"]["result"])

    def _answer(self, parameters: dict[str, str]) -> dict[str, Any]:
        """What it says, also of a query that it refuses; anything else comes from something in between."""
        hint = "is it running, and is this its address?"
        try:
            response = httpx.get(
                f"{self._url}/api/v1/query",
                params=parameters,
                timeout=self._timeout_seconds,
                verify=self._verify,
                follow_redirects=True,
                # It is on the loopback, or inside the cluster: no proxy of the environment knows it.
                trust_env=False,
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            message = f"Prometheus at {self._url} does not answer"
            raise PrometheusUnreachable(message, hint=hint, detail=repr(error)) from error
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or "status" not in answer:
            message = f"{self._url} answered {response.status_code} and no Prometheus"
            raise PrometheusUnreachable(message, hint=hint, detail=response.text[:200])
        return answer
