"""Prometheus' query API, for evidence of gates, counts of requests, and the doctor.

It blocks, and on an event loop it is called in a thread of its own (`tidegate.core.threads`): the loop resolves names
in a few shared threads, and those that wait for a Prometheus that is away would hold up the requests of a rollback.
"""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode, urlsplit

import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError

from tidegate.core.access.model import PrometheusAccess, PrometheusEndpoint
from tidegate.core.access.secrets import SecretStore, scrubbed
from tidegate.core.adapters.prometheus_auth import Requester, RequestProof
from tidegate.core.errors import OutsideError
from tidegate.core.metadata_servers import request_hook
from tidegate.core.text import LONGEST, json_of, one_line, parsed, redacted


class PrometheusUnreachable(OutsideError):
    """Nothing at its address answers, or something that is no Prometheus, or only a part of its stores."""


class PrometheusDenied(PrometheusUnreachable):
    """It does not take the credentials, or wants some; `detail` has its own words."""


class PrometheusUntrusted(PrometheusUnreachable):
    """Its certificate is not signed by anyone whom we trust, or is another's."""


class PrometheusRefused(OutsideError):
    """It cannot evaluate the query; `detail` has its own words."""


Sample = tuple[float, float]
"""Unix time in seconds, and the value."""


class HistogramAnswer(BaseModel):
    """A native histogram at one time."""

    buckets: tuple[tuple[int, float, float, float], ...] = ()
    """Boundary rule, left and right edge, count."""


class SeriesAnswer(BaseModel):
    """One series of a vector or a matrix, as the API words it, its numbers read."""

    metric: dict[str, str]
    value: Sample | None = None
    """In a vector; None of a native histogram."""
    values: tuple[Sample, ...] = ()
    """In a matrix."""
    histograms: tuple[tuple[float, HistogramAnswer], ...] = ()


class InstantResult(NamedTuple):
    """The answer to an instant query."""

    kind: str
    """`vector`, `matrix` or `scalar`."""
    series: list[SeriesAnswer]
    """Of a vector or a matrix."""
    scalar: Sample | None = None


_SERIES: TypeAdapter[list[SeriesAnswer] | None] = TypeAdapter(list[SeriesAnswer] | None)
_SCALAR: TypeAdapter[Sample] = TypeAdapter(Sample)
_HINT = "is it running, and is this its address?"
_WANTS_CERTIFICATE = ("CERTIFICATE_REQUIRED", "BAD_CERTIFICATE", "UNKNOWN_CA", "CERTIFICATE_EXPIRED", "ACCESS_DENIED")
"""What a server's TLS says to a client's certificate, or to none."""
MOST_REDIRECTS = 5


class PrometheusClient:
    """Asks one Prometheus; every answer is of one evaluation time. Nothing is asked twice: callers ask again anyway."""

    def __init__(
        self, at: str | PrometheusEndpoint, *, timeout_seconds: float, secrets: SecretStore | None = None
    ) -> None:
        """`at` is Prometheus' own address, with a path where it is behind one; nothing is asked yet.

        Raises:
            NotInstalled: a package that its credentials need is not there.
        """
        url = at.url if isinstance(at, PrometheusEndpoint) else at
        self._url, self._own = redacted(url.rstrip("/")), _named_in(url)
        self._requester = Requester(at if isinstance(at, PrometheusEndpoint) else PrometheusAccess(), secrets)
        self._timeout_seconds = timeout_seconds

    def query(self, query: str, at: datetime | None = None) -> InstantResult:
        """The result of an instant query, of now without `at`.

        Raises:
            PrometheusUnreachable, PrometheusRefused: there is none, or it is not whole.
            CredentialMissing: a credential is not where it should be.
        """
        answer = self._answer({"query": query} | ({"time": str(at.timestamp())} if at else {}))
        if answer["status"] != "success":
            raise PrometheusRefused(
                f"Prometheus at {self._url} refused {query}", hint="--debug shows why", detail=str(answer.get("error"))
            )
        if missing := _not_whole(answer):
            raise PrometheusUnreachable(
                f"Prometheus at {self._url} answers only in part: {missing}",
                hint="mend the stores that it names; an answer in part decides nothing",
                detail=query,
            )
        try:
            return _result(answer.get("data"))
        except ValidationError as error:
            message = f"Prometheus at {self._url} answers what is no result of a query"
            raise PrometheusUnreachable(message, hint=_HINT, detail=str(error)) from error

    def _answer(self, parameters: dict[str, str]) -> dict[str, Any]:
        """What it says, also of a query that it refuses; anything else comes from something in between."""
        # As signatures want it, in which a space is no `+`.
        url = f"{self._url}/api/v1/query?{urlencode(parameters, quote_via=quote, safe='')}"
        try:
            response, secrets = self._sent(url)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._unreachable(error) from error
        text = scrubbed(response.text, secrets)
        if response.status_code in (401, 403):
            raise PrometheusDenied(
                f"Prometheus at {self._url} refuses {self._requester.proof} ({response.status_code})",
                hint="are they those of this Prometheus, still valid, and allowed to read?",
                detail=text[:200],
            )
        try:
            answer = json_of(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or "status" not in answer:
            message = f"{self._url} answered {response.status_code} and no Prometheus"
            raise PrometheusUnreachable(message, hint=_HINT, detail=text[:200])
        return (
            answer if answer["status"] == "success" else answer | {"error": scrubbed(str(answer.get("error")), secrets)}
        )

    def _sent(self, url: str) -> tuple[httpx.Response, tuple[str, ...]]:
        """The answer, and what no one may read of the request. Credentials go to this Prometheus, and nowhere else."""
        for _ in range(MOST_REDIRECTS):
            proof = self._own or self._requester.sign("GET", url)
            with httpx.Client(
                timeout=self._timeout_seconds,
                verify=self._requester.tls(_public_authorities) if url.startswith("https:") else False,
                # It is on the loopback, or inside the cluster: no proxy of the environment knows it.
                trust_env=False,
                event_hooks={"request": [request_hook()]},
            ) as client:
                response = client.get(url, headers=dict(proof.headers))
            if response.next_request is None:
                return response, proof.secrets
            url = self._next(url, str(response.next_request.url))
        raise PrometheusUnreachable(f"{self._url} redirects in a circle", hint=_HINT)

    def _next(self, url: str, target: str) -> str:
        if _origin(url) != _origin(target) and (self._own or self._requester.is_known):
            raise PrometheusUnreachable(
                f"{self._url} redirects to {_origin(target)}, where its credentials are not sent",
                hint="name the address at which it answers itself",
            )
        return target

    def _unreachable(self, error: Exception) -> PrometheusUnreachable:
        tls = next(_tls_errors(error), None)
        if isinstance(tls, ssl.SSLCertVerificationError):
            return PrometheusUntrusted(
                f"the certificate of Prometheus at {self._url} is not trusted: {tls.verify_message}",
                hint=f"we trust {self._requester.authority}; name its authority in `ca`",
                detail=repr(error),
            )
        if tls is not None and any(word in str(tls) for word in _WANTS_CERTIFICATE):
            return PrometheusDenied(
                f"Prometheus at {self._url} refuses {self._requester.proof} in the TLS handshake",
                hint="it wants a client certificate of an authority that it trusts",
                detail=str(tls),
            )
        return PrometheusUnreachable(f"Prometheus at {self._url} does not answer", hint=_HINT, detail=repr(error))


def _not_whole(answer: Mapping[str, Any]) -> str:
    """What a successful answer says of its own gaps, in one line.

    Thanos and Prometheus warn of stores that did not answer, and of samples that an expression had to leave out;
    VictoriaMetrics says `isPartial`. Remarks are harmless: `infos`, which Prometheus before 3.0 had among `warnings`.
    """
    told = answer.get("warnings") or []
    warnings = [one_line(str(each)) for each in (told if isinstance(told, list) else [told])]
    gaps = [each for each in warnings if not each.startswith("PromQL info:")]
    return "; ".join(gaps)[:LONGEST] or ("isPartial: true" if answer.get("isPartial") else "")


def _result(data: object) -> InstantResult:
    """An empty result may be `null`.

    Raises:
        ValidationError: it is none.
    """
    known = data if isinstance(data, Mapping) else {}
    kind = known.get("resultType")
    if kind in ("vector", "matrix"):
        return InstantResult(kind, _SERIES.validate_python(known.get("result")) or [])
    return InstantResult("scalar", [], _SCALAR.validate_python(known.get("result")))


def _public_authorities() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


def _named_in(url: str) -> RequestProof | None:
    """A name and password that stand in an address; they are taken out of it, so that no log has them."""
    parts = parsed(url)
    if parts is None or parts.username is None:
        return None
    password = unquote(parts.password or "")
    both = b64encode(f"{unquote(parts.username)}:{password}".encode()).decode()
    return RequestProof({"Authorization": f"Basic {both}"}, (password, both))


def _origin(url: str) -> str:
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return f"{parts.scheme}://{parts.hostname}:{port}"


def _tls_errors(error: BaseException | None) -> Iterator[ssl.SSLError]:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            yield error
        error = error.__cause__ or error.__context__
