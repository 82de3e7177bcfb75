"""What a spec says of a Prometheus-compatible API (address, tenant, credentials, trusted authority), and its secrets.

A secret never stands in a spec, only where it is: an environment variable, a file, a key of a Kubernetes Secret. A text
in a secret's place is refused without being quoted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from tidegate.core.errors import OutsideError, UsageError
from tidegate.core.files import Unreadable, read_text
from tidegate.core.model import Loc, SpecConflict, SpecModel, at_odds
from tidegate.core.spec import load_spec

Url = Annotated[str, Field(pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$")]
"""Address with `http://` or `https://`, without a name or password before the host, and without a query."""

_PLACES = "{env: NAME}, {file: /PATH} or {secret: {name: NAME, key: KEY}}; the secret itself stays outside"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OBJECT = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_KEY = re.compile(r"[-._A-Za-z0-9]{1,253}")


_PATH = re.compile(r"(?!.*/\.\.(/|$))/[^\s\0]*")


def _unquoted(pattern: re.Pattern[str], expected: str) -> BeforeValidator:
    """A text of that form; another is refused without being told: somebody may have taken the key for the secret's."""

    def check(value: object) -> object:
        if not isinstance(value, str | Path) or not pattern.fullmatch(str(value)):
            raise at_odds("something else", expected)
        return value

    return BeforeValidator(check)


class AccessPart(SpecModel):
    """A mapping; anything else in its place may be the secret itself, and is not quoted."""

    form: ClassVar[str] = ""
    """In words, where its keys do not say enough."""

    @model_validator(mode="before")
    @classmethod
    def _is_a_mapping(cls, said: object) -> object:
        if not isinstance(said, Mapping | cls):
            raise at_odds("something else", cls.form or f"a mapping with {', '.join(cls.model_fields)}")
        return said


class SecretKey(AccessPart):
    """One key of a Kubernetes Secret, in the namespace of the object that names it."""

    name: Annotated[str, _unquoted(_OBJECT, "the name of a Secret")]
    key: Annotated[str, _unquoted(_KEY, "a key of the Secret")]


class CredentialSource(AccessPart):
    """Where a secret is. Read again for every request, so that one that was rotated is used at once."""

    form = _PLACES
    env: Annotated[str, _unquoted(_VARIABLE, "the name of an environment variable")] | None = None
    file: Annotated[Path, _unquoted(_PATH, "a path that begins with `/` and has no `..`")] | None = None
    secret: SecretKey | None = None
    """In pods of workflows, and for what asks from inside a cluster: Argo Rollouts."""

    @model_validator(mode="after")
    def _is_somewhere(self) -> CredentialSource:
        if self.env is None and self.file is None and self.secret is None:
            raise at_odds("nothing", _PLACES)
        if self.env is not None and self.file is not None:
            raise at_odds("`env` and `file`", "one of them")
        return self


class BasicAuth(AccessPart):
    """Name and password."""

    username: Annotated[str, Field(coerce_numbers_to_str=True)]
    password: CredentialSource
    header: SecretKey | None = None
    """A key that holds the whole value of the header, `Basic` and what follows: Argo Rollouts cannot make it."""


class ClientCertificate(AccessPart):
    """What the client shows in the TLS handshake, in PEM."""

    certificate: CredentialSource
    key: CredentialSource


class SigV4(AccessPart):
    """Amazon's request signature, version 4; needs the extra `aws`."""

    region: str = Field(pattern=r"^[a-z0-9-]+$")
    """Of AWS, such as eu-west-1."""
    service: str = Field(default="aps", pattern=r"^[a-z0-9-]+$")
    profile: str | None = Field(default=None, pattern=r"^\S+$")
    """Of AWS' own configuration files. Without keys and profile, AWS' usual places are looked at, as its tools do:
    variables, web identity (IRSA), a pod's or a machine's role."""
    access_key: CredentialSource | None = None
    secret_key: CredentialSource | None = None
    session_token: CredentialSource | None = None
    role: str | None = Field(default=None, pattern=r"^arn:\S+$")
    """That the controller of Argo Rollouts takes on; tidegate's own comes with its profile or its pod."""

    @model_validator(mode="after")
    def _has_whole_keys(self) -> SigV4:
        if (self.access_key is None) != (self.secret_key is None):
            raise at_odds("one of `access_key` and `secret_key`", "both, or neither for AWS' usual places")
        return self


class AuthKind(StrEnum):
    """How the one who asks proves who it is; the values are the keys of `auth`."""

    BEARER = "bearer"
    BASIC = "basic"
    CERTIFICATE = "certificate"
    SIGV4 = "sigv4"


class PrometheusAuth(AccessPart):
    """One way of saying who asks."""

    one_of = tuple(AuthKind)
    bearer: CredentialSource | None = None
    """A token for `Authorization: Bearer`."""
    basic: BasicAuth | None = None
    certificate: ClientCertificate | None = None
    sigv4: SigV4 | None = None

    @property
    def kind(self) -> AuthKind:
        """Which of them it is."""
        return next(kind for kind in AuthKind if getattr(self, kind) is not None)


class PrometheusAccess(SpecModel):
    """What goes with every request to a Prometheus, and whom it is believed to be."""

    TENANT_HEADER: ClassVar[str] = "X-Scope-OrgID"

    tenant: str | None = Field(default=None, pattern=r"^[-A-Za-z0-9!._*'()|]{1,150}$")
    """`X-Scope-OrgID`: whose series, where one server has those of many (Mimir, Cortex, Thanos)."""
    ca: CredentialSource | None = None
    """Certificates in PEM of the authorities that sign the server's, in place of the public ones."""
    auth: PrometheusAuth | None = None

    def sources(self) -> Iterator[tuple[tuple[str, ...], CredentialSource]]:
        """Every place of a secret or a certificate, by its keys below this one."""
        if self.ca:
            yield ("ca",), self.ca
        yield from self.secrets()

    def secrets(self) -> Iterator[tuple[tuple[str, ...], CredentialSource]]:
        """Those that prove who asks."""
        auth = self.auth
        if auth is None:
            return
        kind = getattr(auth, auth.kind)
        parts = {"": kind} if isinstance(kind, CredentialSource) else dict(kind)
        for name, part in parts.items():
            if isinstance(part, CredentialSource):
                yield ("auth", str(auth.kind), *filter(None, (name,))), part


class PrometheusEndpoint(PrometheusAccess):
    """One Prometheus, as one of those who ask it reaches it."""

    url: Url


def endpoint_too(address: object) -> object:
    """An address alone is an endpoint that asks for nothing."""
    return {"url": address} if isinstance(address, str) else address


Endpoint = Annotated[PrometheusEndpoint, BeforeValidator(endpoint_too, json_schema_input_type=Url | PrometheusEndpoint)]


_ANOTHER = "an address of its own under `rollouts`, which asks for nothing or for what it can do"


def conflicts_for_rollouts(endpoint: PrometheusEndpoint) -> Iterator[SpecConflict]:
    """What Argo Rollouts lacks: a Secret for the header, or the way itself."""
    auth = endpoint.auth
    if auth is None:
        return
    where: Loc = ("auth", str(auth.kind))
    if auth.certificate:
        found = "a client certificate, which Argo Rollouts cannot show"
        yield SpecConflict(where, found, _ANOTHER)
    if auth.bearer and auth.bearer.secret is None:
        yield SpecConflict(where, "no Secret for Argo Rollouts", "`secret` too, or " + _ANOTHER)
    if auth.basic and auth.basic.header is None:
        expected = "`header`, a Secret's key with `Basic` and what follows, or " + _ANOTHER
        yield SpecConflict(where, "no header for Argo Rollouts, which cannot make it", expected)


class PrometheusAccessFile(PrometheusAccess):
    """The file of `--prometheus-access`: how a Prometheus is asked that no spec names."""

    api_version: Literal["tidegate/v1"] = Field(default="tidegate/v1", alias="apiVersion")
    kind: Literal["PrometheusAccess"] = "PrometheusAccess"


def endpoint_at(url: str, access: Path | None) -> PrometheusEndpoint:
    """The endpoint at an address that the command line names, with the access of a file, if any.

    Raises:
        UsageError: it is no address, or has a name and password in it.
        SpecError: the file is wrong.
    """
    said = load_spec(access, PrometheusAccessFile) if access else PrometheusAccess()
    try:
        return PrometheusEndpoint(url=url, tenant=said.tenant, ca=said.ca, auth=said.auth)
    except ValidationError as error:
        raise UsageError(
            f"--prometheus: found {url!r}; expected an address such as http://localhost:9090",
            hint="without a name, a password and a query: --prometheus-access FILE says who asks",
        ) from error


SECRETS_FOLDER = "TIDEGATE_SECRETS"
"""The variable that says where Secrets are mounted: each a folder with its name, and a file for each of its keys."""

MOST_BYTES = 1024 * 1024
"""Of a file; what a Secret holds."""

SHORTEST = 4
"""Characters of a text that is taken for a secret where others' words are cleaned: `a` is everywhere."""


class CredentialMissing(OutsideError):
    """A secret is not where the spec says that it is."""


@dataclass(frozen=True)
class SecretStore:
    """The places of this process. Nothing is kept: what is asked for again is read again."""

    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def _path(self, source: CredentialSource) -> Path | None:
        folder = self.environment.get(SECRETS_FOLDER)
        return Path(folder, source.secret.name, source.secret.key) if source.secret and folder else source.file

    def where(self, source: CredentialSource) -> str:
        """For people: `the variable X`, `the file /x`."""
        if path := self._path(source):
            return f"the file {path}"
        if source.env:
            return f"the variable {source.env}"
        return f"the Secret {source.secret.name}, key {source.secret.key}" if source.secret else "nowhere"

    def text(self, source: CredentialSource) -> str:
        """The secret, without spaces and line ends around it.

        Raises:
            CredentialMissing: it is not there, or is empty.
        """
        if path := self._path(source):
            try:
                # A device or a pipe would be waited for.
                found = read_text(path, most_bytes=MOST_BYTES).strip() if path.is_file() or not path.exists() else ""
            except Unreadable as error:
                message = f"the credential in the file {path} cannot be read: {error}"
                raise CredentialMissing(message, hint="check its path and its permissions") from error
            missing = f"the file {path}, which holds a credential, is empty or no file"
            hint = "write the credential into it"
        elif source.env:
            found = self.environment.get(source.env, "").strip()
            missing, hint = f"the environment variable {source.env}, which holds a credential, is not set", "set it"
        else:
            found, missing = "", f"the credential is in {self.where(source)}, which is not mounted here"
            hint = f"name an `env` or a `file` next to `secret`, or the folder of mounted Secrets in {SECRETS_FOLDER}"
        if not found:
            raise CredentialMissing(missing, hint=hint)
        return found


def scrubbed(text: str, secrets: Iterable[str]) -> str:
    """`text` with every one of `secrets` replaced: a server may say in its answer what it was sent."""
    # The longest first: one may be a part of another.
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= SHORTEST:
            text = text.replace(secret, "***")
    return text
