"""What a request to a Prometheus carries to say who asks, made again for each: secrets in files may be rotated."""

from __future__ import annotations

import ssl
import tempfile
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tidegate.core.access.model import (
    AuthKind,
    BasicAuth,
    ClientCertificate,
    CredentialSource,
    PrometheusAccess,
    SigV4,
)
from tidegate.core.access.secrets import CredentialMissing, SecretStore
from tidegate.core.adapters.sigv4 import AwsKeys, AwsSigner

_WORDS = {
    AuthKind.BEARER: "the token",
    AuthKind.BASIC: "the name and password",
    AuthKind.CERTIFICATE: "the client certificate",
    AuthKind.SIGV4: "the AWS signature with keys",
}


@dataclass(frozen=True)
class RequestProof:
    """Headers of one request, and the texts in them that nobody else may read."""

    headers: Mapping[str, str]
    secrets: tuple[str, ...] = ()


class Requester:
    """The one who asks a Prometheus."""

    def __init__(self, access: PrometheusAccess, store: SecretStore | None = None) -> None:
        """No secret is read yet.

        Raises:
            NotInstalled: a package that `access` needs is not there.
        """
        self._access, self._auth = access, access.auth
        self._store = store or SecretStore()
        aws = access.auth.sigv4 if access.auth else None
        self._signer = AwsSigner(aws.region, aws.service, aws.profile) if aws else None
        self._context: tuple[object, ssl.SSLContext] | None = None

    @property
    def is_known(self) -> bool:
        """Whether anything goes with a request that is meant for this Prometheus alone."""
        return self._auth is not None or self._access.tenant is not None

    @property
    def proof(self) -> str:
        """For people, what says who asks and where that is: `the token in the variable X`."""
        if self._auth is None:
            return "requests without credentials"
        places = dict.fromkeys(self._store.where(source) for _, source in self._access.secrets())
        return f"{_WORDS[self._auth.kind]} in {' and '.join(places) or 'the usual places of AWS'}"

    @property
    def authority(self) -> str:
        """For people, by whom a server's certificate has to be signed."""
        return f"those in {self._store.where(self._access.ca)}" if self._access.ca else "the public authorities"

    def sign(self, method: str, url: str) -> RequestProof:
        """Of a request without a body.

        Raises:
            CredentialMissing: a secret is not where it should be.
        """
        headers = {PrometheusAccess.TENANT_HEADER: self._access.tenant} if self._access.tenant else {}
        if self._auth and self._auth.bearer:
            token = self._header_text(self._auth.bearer)
            return RequestProof({**headers, "Authorization": f"Bearer {token}"}, (token,))
        if self._auth and self._auth.basic:
            return self._with_password(self._auth.basic, headers)
        if self._auth and self._auth.sigv4 and self._signer:
            keys = self._keys(self._auth.sigv4) or self._signer.usual_keys()
            signed = self._signer.sign(method, url, headers, keys)
            return RequestProof(signed, (keys.secret_key, keys.session_token or "", signed["Authorization"]))
        return RequestProof(headers)

    def tls(self, public: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        """The authorities to believe and the certificate to show; made again once one of them is another.

        `public` makes one that believes the public authorities, for an access that names none.

        Raises:
            CredentialMissing: one of them is not where it should be, or is none.
        """
        certificate = self._auth.certificate if self._auth else None
        authorities = self._store.text(self._access.ca) if self._access.ca else ""
        shown = self._shown(certificate) if certificate else ()
        # Kept: reading the public authorities takes longer than a query.
        if self._context is None or self._context[0] != (authorities, shown):
            self._context = (authorities, shown), self._made(authorities, certificate, shown, public)
        return self._context[1]

    def _shown(self, certificate: ClientCertificate) -> tuple[str, ...]:
        return self._store.text(certificate.certificate), self._store.text(certificate.key)

    def _made(
        self,
        authorities: str,
        certificate: ClientCertificate | None,
        shown: tuple[str, ...],
        public: Callable[[], ssl.SSLContext],
    ) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if self._access.ca else public()
        if self._access.ca:
            with self._as_pem(self._access.ca):
                context.load_verify_locations(cadata=authorities)
        if certificate:
            # OpenSSL takes certificates to show from files alone.
            with self._as_pem(certificate.certificate, certificate.key), tempfile.TemporaryDirectory() as folder:
                files = [Path(folder, name) for name in ("certificate", "key")]
                for file, text in zip(files, shown, strict=True):
                    file.touch(mode=0o600)
                    file.write_text(text, encoding="utf-8")
                # An empty password, or it would ask for one at the terminal.
                context.load_cert_chain(files[0], files[1], password="")
        return context

    @contextmanager
    def _as_pem(self, *sources: CredentialSource) -> Iterator[None]:
        try:
            yield
        except (ssl.SSLError, ValueError) as error:
            places = " and ".join(dict.fromkeys(map(self._store.where, sources)))
            raise CredentialMissing(
                f"what {places} holds is no certificate with its key in PEM"
                if len(sources) > 1
                else f"what {places} holds is no certificate in PEM",
                hint="write it as PEM",
            ) from error

    def _with_password(self, basic: BasicAuth, headers: Mapping[str, str]) -> RequestProof:
        name = basic.username if isinstance(basic.username, str) else self._store.text(basic.username)
        password = self._store.text(basic.password)
        both = b64encode(f"{name}:{password}".encode()).decode()
        return RequestProof({**headers, "Authorization": f"Basic {both}"}, (password, both))

    def _header_text(self, source: CredentialSource) -> str:
        text = self._store.text(source)
        # The library that would refuse it would quote it.
        if not text.isascii() or not text.isprintable() or " " in text:
            raise CredentialMissing(
                f"what {self._store.where(source)} holds is no token: it has spaces or line ends",
                hint="write the token alone, in one line",
            )
        return text

    def _keys(self, aws: SigV4) -> AwsKeys | None:
        if aws.access_key is None or aws.secret_key is None:
            return None
        token = self._store.text(aws.session_token) if aws.session_token else None
        return AwsKeys(self._store.text(aws.access_key), self._store.text(aws.secret_key), token)
