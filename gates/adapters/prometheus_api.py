"""Prometheus' query API: raw samples of one moment's view, and single numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from urllib3.util import Retry

from gates.scraped.histograms import Bucket
from gates.scraped.series import RawSeries
from tidegate.core.errors import OutsideError

NAME = "__name__"


class PrometheusApi:
    """Asks; every answer is of one evaluation time."""

    def __init__(self, url: str, *, timeout_seconds: int) -> None:
        """`url` is Prometheus' own address; nothing is asked yet."""
        self._url = url
        # The gate is asked again anyway; a retry in here would only hide how long it takes.
        session = requests.Session()
        # Prometheus is on the loopback here, and inside the cluster there: no proxy of the environment knows it.
        session.trust_env = False
        self._client = PrometheusConnect(url=url, timeout=timeout_seconds, retry=Retry(0), session=session)

    def samples(
        self, names: Iterable[str], match: Mapping[str, str], since: datetime, until: datetime
    ) -> list[RawSeries]:
        """Every series of these names with these labels, with its raw samples in [since, until].

        Raises:
            OutsideError: when Prometheus does not answer, or refuses.
        """
        # One more millisecond: newer versions leave the range's left end out.
        span = math.ceil((until - since) / timedelta(milliseconds=1)) + 1
        selected = selector({NAME: "|".join(names)} | dict(match), regex=NAME)
        return [series_of(answer) for answer in self.ask(f"{selected}[{span}ms]", until)]

    def ask(self, query: str, at: datetime) -> list[dict[str, Any]]:
        """The result of an instant query, as the API words it.

        Raises:
            OutsideError: when Prometheus does not answer, or refuses the query.
        """
        try:
            answer: list[dict[str, Any]] = self._client.custom_query(query, params={"time": at.timestamp()})
        except requests.RequestException as error:
            hint = "is it running, and is this its address?"
            raise OutsideError(f"Prometheus at {self._url} does not answer", hint=hint, detail=str(error)) from error
        except PrometheusApiClientException as error:
            raise OutsideError(f"Prometheus at {self._url} refused {query}", detail=str(error)) from error
        return answer


def api_of_region(url: str | Mapping[str, str], *, timeout_seconds: int) -> Callable[[str], PrometheusApi]:
    """Who is asked about a region: the one at `url`, or the region's own where `url` has one for each."""
    if isinstance(url, str):
        everywhere = PrometheusApi(url, timeout_seconds=timeout_seconds)
        return lambda _region: everywhere
    return {region: PrometheusApi(each, timeout_seconds=timeout_seconds) for region, each in url.items()}.__getitem__


def series_of(answer: Mapping[str, Any]) -> RawSeries:
    """One entry of a range vector, as the API words it."""
    labels = dict(answer["metric"])
    return RawSeries(
        name=labels.pop(NAME, ""),
        labels=labels,
        values=tuple((float(at), float(value)) for at, value in answer.get("values", ())),
        histograms=tuple(
            (float(at), tuple(_bucket(entry) for entry in histogram.get("buckets", ())))
            for at, histogram in answer.get("histograms", ())
        ),
    )


def selector(match: Mapping[str, str], *, regex: str = "") -> str:
    """`{name="value",...}`; the label `regex` is matched as an expression."""
    pairs = (f'{name}{"=~" if name == regex else "="}"{_escaped(value)}"' for name, value in match.items())
    return "{" + ",".join(pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _bucket(entry: tuple[int, str, str, str]) -> Bucket:
    rule, left, right, count = entry
    return int(rule), float(left), float(right), float(count)
