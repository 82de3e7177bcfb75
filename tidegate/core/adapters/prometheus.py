"""Prometheus' query API, for evidence of gates, counts of requests, and the doctor, asked by prometheus-api-client.

It blocks, and on an event loop it is called in a thread of its own (`tidegate.core.threads`): the loop resolves names
in a few shared threads, and those that wait for a Prometheus that is away would hold up the requests of a rollback.
"""

from __future__ import annotations

import logging
import socket
import ssl
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from errno import ETIMEDOUT
from functools import lru_cache, partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from threading import Timer
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import urllib3
from prometheus_api_client import PrometheusConnect
from pydantic import BaseModel, TypeAdapter, ValidationError
from requests import PreparedRequest, Response, Session
from requests.utils import DEFAULT_CA_BUNDLE_PATH
from urllib3.exceptions import HTTPError

from tidegate.core.access import (
    AuthKind,
    CredentialMissing,
    CredentialSource,
    PrometheusEndpoint,
    SecretStore,
    SigV4,
    scrubbed,
)
from tidegate.core.adapters.extras import require
from tidegate.core.errors import OutsideError
from tidegate.core.metadata_servers import refuse_metadata_server
from tidegate.core.text import LONGEST, json_of, one_line, redacted

MOST_BYTES = 64 << 20
"""Of an answer, unpacked: raw samples of a thousand pods have 20 MB."""


class PrometheusUnreachable(OutsideError):
    """Nothing at its address answers, or something that is no Prometheus, or only a part of its stores."""


class PrometheusDenied(PrometheusUnreachable):
    """It does not take the credentials, or wants some; `detail` has its own words."""


class PrometheusRefused(OutsideError):
    """It cannot evaluate the query; `detail` has its own words."""


Sample = tuple[float, float]
"""Unix time in seconds, and the value."""


class SeriesAnswer(BaseModel):
    """One series of a vector or a matrix, as the API words it, its numbers read."""

    metric: dict[str, str]
    value: Sample | None = None
    """In a vector; None of a native histogram."""
    values: tuple[Sample, ...] = ()
    """In a matrix."""
    histograms: tuple[object, ...] = ()
    """Of a native histogram, which nobody here reads."""


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
_WORDS = {
    AuthKind.BEARER: "the token",
    AuthKind.BASIC: "the name and password",
    AuthKind.CERTIFICATE: "the client certificate",
    AuthKind.SIGV4: "the AWS signature with keys",
}


class PrometheusClient:
    """Asks one Prometheus; every answer is of one evaluation time. Nothing is asked twice: callers ask again anyway.

    Secrets are read for each request: one that was rotated in a file is used at once.
    """

    def __init__(
        self, at: str | PrometheusEndpoint, *, timeout_seconds: float, secrets: SecretStore | None = None
    ) -> None:
        """`at` is Prometheus' own address, with a path where it is behind one; nothing is asked and no secret read yet.

        Raises:
            NotInstalled: a package that its credentials need is not there.
        """
        self._at = at if isinstance(at, PrometheusEndpoint) else PrometheusEndpoint(url=at)
        self._url, self._auth = self._at.url.rstrip("/"), self._at.auth
        self._secrets = secrets or SecretStore()
        self._timeout_seconds = timeout_seconds
        self._aws: Any = None
        if self._auth and self._auth.sigv4:
            require("botocore")
            # With DEBUG it writes down what it signs, a session's token among it.
            logging.getLogger("botocore.auth").setLevel(logging.INFO)

    def query(self, query: str, at: datetime | None = None) -> InstantResult:
        """The result of an instant query, of now without `at`.

        Raises:
            PrometheusUnreachable, PrometheusRefused: there is none, or it is not whole.
            CredentialMissing: a credential is not where it should be.
        """
        session = _Session(partial(self._data, query))
        try:
            asker = PrometheusConnect(self._url, session=session, retry=0)
            return _result(session, asker.custom_query(query, {"time": str(at.timestamp())} if at else None))
        except ValidationError as error:
            message = f"Prometheus at {self._url} answers what is no result of a query"
            raise PrometheusUnreachable(message, hint=_HINT, detail=str(error)) from error
        # A ValueError is of an address that none can be: `http://[::1`.
        except (OSError, HTTPException, HTTPError, ValueError) as error:
            raise self._unreachable(error) from error

    def _data(self, query: str, request: PreparedRequest) -> object:
        """What a whole answer holds; what is no answer comes from something in between."""
        # As signatures want it, in which a space is no `+`.
        path, _, parameters = str(request.url).partition("?")
        url = f"{path}?{parameters.replace('+', '%20')}"
        own, secrets = self._headers(url)
        response, body = self._sent(url, {**request.headers, **own})
        text = scrubbed(body.decode("utf-8", "replace"), secrets)
        if response.status in (401, 403):
            raise PrometheusDenied(
                f"Prometheus at {self._url} refuses {self._who} ({response.status})",
                hint="are they those of this Prometheus, still valid, and allowed to read?",
                detail=text[:200],
            )
        try:
            answer = json_of(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or "status" not in answer:
            message = f"{self._url} answered {response.status} and no Prometheus"
            raise PrometheusUnreachable(message, hint=_HINT, detail=text[:200])
        if answer["status"] != "success":
            said = scrubbed(str(answer.get("error")), secrets)
            raise PrometheusRefused(f"Prometheus at {self._url} refused {query}", hint="--debug shows why", detail=said)
        if missing := _not_whole(answer):
            raise PrometheusUnreachable(
                f"Prometheus at {self._url} answers only in part: {missing}",
                hint="mend the stores that it names; an answer in part decides nothing",
                detail=query,
            )
        return answer.get("data")

    def _sent(self, url: str, headers: Mapping[str, str]) -> tuple[urllib3.HTTPResponse, bytes]:
        """The answer to a GET, and its body. Credentials go to this Prometheus, and nowhere else."""
        at, ends = urlsplit(url), time.monotonic() + self._timeout_seconds
        host, trust = at.hostname or "", self._trust() if at.scheme == "https" else None
        connection = HTTPSConnection(host, at.port, context=trust) if trust else HTTPConnection(host, at.port)
        refuse_metadata_server(host)
        with closing(connection):
            connection.sock = line = socket.create_connection((host, connection.port), self._timeout_seconds)
            refuse_metadata_server(line.getpeername()[0])
            with _ended_at(ends, line):
                if trust:
                    connection.sock = trust.wrap_socket(line, server_hostname=host)
                # One who refuses a certificate has hung up, and what he said of it is read below.
                with suppress(BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
                    connection.request("GET", f"{at.path}?{at.query}", headers=dict(headers))
                found = connection.getresponse()
                response = urllib3.HTTPResponse(found, dict(found.headers), found.status, preload_content=False)
                body = response.read(MOST_BYTES + 1, decode_content=True)
        if len(body) > MOST_BYTES:
            message = f"Prometheus at {self._url} answers with more than {MOST_BYTES >> 20} MiB"
            raise PrometheusUnreachable(message, hint="select fewer series")
        if target := response.get_redirect_location():
            message = f"{self._url} redirects to {redacted(target).partition('/api/v1/')[0]}"
            hint = "name the address at which it answers itself: credentials are sent nowhere else"
            raise PrometheusUnreachable(message, hint=hint)
        return response, body

    @property
    def _who(self) -> str:
        """For people, what says who asks and where that is: `the token in the variable X`."""
        if self._auth is None:
            return "requests without credentials"
        places = self._places(source for _, source in self._at.secrets())
        return f"{_WORDS[self._auth.kind]} in {places or 'the usual places of AWS'}"

    def _places(self, sources: Iterable[CredentialSource]) -> str:
        return " and ".join(dict.fromkeys(map(self._secrets.where, sources)))

    def _headers(self, url: str) -> tuple[dict[str, str], tuple[str, ...]]:
        """What says who asks, for a GET without a body, and the texts in it that nobody else may read."""
        headers = {self._at.TENANT_HEADER: self._at.tenant} if self._at.tenant else {}
        auth, text = self._auth, self._secrets.text
        if auth and auth.bearer:
            token = text(auth.bearer)
            # The library that would refuse it would quote it.
            if not token.isascii() or not token.isprintable() or " " in token:
                message = f"what {self._secrets.where(auth.bearer)} holds is no token: it has spaces or line ends"
                raise CredentialMissing(message, hint="write the token alone, in one line")
            return {**headers, "Authorization": f"Bearer {token}"}, (token,)
        if auth and auth.basic:
            password = text(auth.basic.password)
            encoded = b64encode(f"{auth.basic.username}:{password}".encode()).decode()
            return {**headers, "Authorization": f"Basic {encoded}"}, (password, encoded)
        if auth and auth.sigv4:
            return self._signed(auth.sigv4, url, headers)
        return headers, ()

    def _signed(self, aws: SigV4, url: str, headers: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
        """Amazon's request signature, version 4, by botocore."""
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        if aws.access_key and aws.secret_key:
            places = (aws.access_key, aws.secret_key, aws.session_token)
            keys = Credentials(*(self._secrets.text(place) for place in places if place))
        else:
            keys = self._usual_keys(aws.profile)
        request = AWSRequest(method="GET", url=url, headers=dict(headers))
        SigV4Auth(keys, aws.service, aws.region).add_auth(request)
        signed = dict(request.headers.items())
        return signed, (keys.secret_key, keys.token or "", signed["Authorization"])

    def _usual_keys(self, profile: str | None) -> Any:
        """Those that AWS' own tools would use; those of a role are got again before they end."""
        from botocore.exceptions import BotoCoreError
        from botocore.session import Session

        try:
            self._aws = self._aws or Session(profile=profile).get_credentials()
            if self._aws:
                return self._aws.get_frozen_credentials()
        except BotoCoreError as error:
            raise CredentialMissing(f"no AWS credentials: {error}", hint="check the profile and its files") from error
        hint = "name `access_key` and `secret_key`, or give this process a role"
        raise CredentialMissing("no AWS credentials were found", hint=hint)

    def _trust(self) -> ssl.SSLContext:
        """The authorities to believe and the certificate to show."""
        shown = self._auth.certificate if self._auth else None
        sources = (self._at.ca, *((shown.certificate, shown.key) if shown else (None, None)))
        try:
            return _context(*(self._secrets.text(source) if source else "" for source in sources))
        except (ssl.SSLError, ValueError) as error:
            places = self._places(filter(None, sources))
            message = f"what {places} holds is no certificate in PEM" + (", or not with its key" if shown else "")
            raise CredentialMissing(message, hint="write it as PEM") from error

    def _unreachable(self, error: Exception) -> PrometheusUnreachable:
        tls = next((cause for cause in _causes(error) if isinstance(cause, ssl.SSLError)), None)
        if isinstance(tls, ssl.SSLCertVerificationError):
            authority = f"those in {self._secrets.where(self._at.ca)}" if self._at.ca else "the public authorities"
            return PrometheusUnreachable(
                f"the certificate of Prometheus at {self._url} is not trusted: {tls.verify_message}",
                hint=f"we trust {authority}; name its authority in `ca`",
                detail=str(error),
            )
        if tls is not None and any(word in str(tls) for word in _WANTS_CERTIFICATE):
            return PrometheusDenied(
                f"Prometheus at {self._url} refuses {self._who} in the TLS handshake",
                hint="it wants a client certificate of an authority that it trusts",
                detail=str(tls),
            )
        words = (cause.strerror for cause in _causes(error) if isinstance(cause, OSError) and cause.strerror)
        detail = next(words, None) or str(error)
        return PrometheusUnreachable(f"Prometheus at {self._url} does not answer", hint=_HINT, detail=detail)


def _not_whole(answer: Mapping[str, Any]) -> str:
    """What a successful answer says of its own gaps, in one line.

    Thanos and Prometheus warn of stores that did not answer, and of samples that an expression had to leave out;
    VictoriaMetrics says `isPartial`. Remarks are harmless: `infos`, which Prometheus before 3.0 had among `warnings`.
    """
    told = answer.get("warnings") or []
    warnings = [one_line(str(each)) for each in (told if isinstance(told, list) else [told])]
    gaps = [each for each in warnings if not each.startswith("PromQL info:")]
    return "; ".join(gaps)[:LONGEST] or ("isPartial: true" if answer.get("isPartial") else "")


class _Session(Session):
    """Hands what prometheus-api-client asks to `data`, which sends it once, and keeps what that library drops."""

    def __init__(self, data: Callable[[PreparedRequest], object]) -> None:
        super().__init__()
        # It is on the loopback, or inside the cluster: no proxy and no `.netrc` of the environment knows it.
        self.trust_env = False
        self._data, self.kind = data, ""

    def send(self, request: PreparedRequest, **_: Any) -> Response:
        """No adapter of a session is asked: they follow redirects, and repeat."""
        data = self._data(request)
        known = data if isinstance(data, Mapping) else {}
        self.kind = str(known.get("resultType"))
        response = Response()
        response.status_code = 200
        response.json = lambda **_: {"data": {"result": known.get("result")}}  # type: ignore[method-assign]
        return response


@contextmanager
def _ended_at(ends: float, line: socket.socket) -> Iterator[None]:
    """Cut a connection at that time: a socket limits each of its reads, and a byte a second never ends.

    Raises:
        TimeoutError: it was cut.
    """

    def cut() -> None:
        with suppress(OSError):
            own.shutdown(socket.SHUT_RDWR)

    with line.dup() as own:
        timer = Timer(max(ends - time.monotonic(), 0), cut)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            if time.monotonic() >= ends:
                raise TimeoutError(ETIMEDOUT, "no whole answer in time")


def _result(session: _Session, found: object) -> InstantResult:
    """An empty result may be `null`.

    Raises:
        ValidationError: it is none.
    """
    if session.kind in ("vector", "matrix"):
        return InstantResult(session.kind, _SERIES.validate_python(found) or [])
    return InstantResult("scalar", [], _SCALAR.validate_python(found))


@lru_cache(maxsize=4)
def _context(authorities: str, certificate: str, key: str) -> ssl.SSLContext:
    """By texts in PEM. Kept: reading the public authorities takes longer than a query."""
    if authorities:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=authorities)
    else:
        context = ssl.create_default_context(cafile=DEFAULT_CA_BUNDLE_PATH)
    if certificate:
        # OpenSSL takes certificates to show from files alone.
        with tempfile.TemporaryDirectory() as folder:
            files = Path(folder, "certificate"), Path(folder, "key")
            for file, text in zip(files, (certificate, key), strict=True):
                file.touch(mode=0o600)
                file.write_text(text, encoding="utf-8")
            # An empty password, or it would ask for one at the terminal.
            context.load_cert_chain(*files, password="")
    return context


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
