"""What a spec says of a Prometheus-compatible API: address, tenant, credentials, trusted authority.

A secret never stands here, only where it is: an environment variable, a file, a key of a Kubernetes Secret. A text in
a secret's place is refused without being quoted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, model_validator

from tidegate.core.model import Loc, SpecConflict, SpecModel, at_odds

Url = Annotated[str, Field(pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$")]
"""Address with `http://` or `https://`, without a name or password before the host, and without a query."""

_PLACES = "{env: NAME}, {file: /PATH} or {secret: {name: NAME, key: KEY}}; the secret itself stays outside"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OBJECT = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_KEY = re.compile(r"[-._A-Za-z0-9]{1,253}")


def _unquoted(pattern: re.Pattern[str], expected: str) -> BeforeValidator:
    """A text of that form; another is refused without being told: somebody may have taken the key for the secret's."""

    def check(value: object) -> object:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise at_odds("something else", expected)
        return value

    return BeforeValidator(check)


class AccessPart(SpecModel):
    """A mapping; anything else in its place may be the secret itself, and is not quoted."""

    @model_validator(mode="before")
    @classmethod
    def _is_a_mapping(cls, said: object) -> object:
        if not isinstance(said, Mapping | cls):
            raise at_odds("something else", f"a mapping with {', '.join(cls.model_fields)}")
        return said


class SecretKey(AccessPart):
    """One key of a Kubernetes Secret, in the namespace of the object that names it."""

    name: Annotated[str, _unquoted(_OBJECT, "the name of a Secret")]
    key: Annotated[str, _unquoted(_KEY, "a key of the Secret")]


def _absolute(value: object) -> object:
    text = str(value) if isinstance(value, str | Path) else ""
    if not re.fullmatch(r"/[^\s\0]*", text) or ".." in Path(text).parts:
        raise at_odds("something else", "a path that begins with `/` and has no `..`")
    return value


class CredentialSource(AccessPart):
    """Where a secret is. Read again for every request, so that one that was rotated is used at once."""

    env: Annotated[str, _unquoted(_VARIABLE, "the name of an environment variable")] | None = None
    file: Annotated[Path, BeforeValidator(_absolute)] | None = None
    secret: SecretKey | None = None
    """In pods of workflows, and for what asks from inside a cluster: Argo Rollouts, KEDA."""

    @model_validator(mode="before")
    @classmethod
    def _is_a_mapping(cls, said: object) -> object:
        if not isinstance(said, Mapping | cls):
            raise at_odds("something else", _PLACES)
        return said

    @model_validator(mode="after")
    def _is_somewhere(self) -> CredentialSource:
        if self.env is None and self.file is None and self.secret is None:
            raise at_odds("nothing", _PLACES)
        if self.env is not None and self.file is not None:
            raise at_odds("`env` and `file`", "one of them")
        return self


def _name_too(value: object) -> object:
    return str(value) if isinstance(value, int) else value


class BasicAuth(AccessPart):
    """Name and password."""

    username: str | CredentialSource = Field(union_mode="left_to_right")
    """The name itself, or where it is; KEDA reads it from a Secret alone."""
    password: CredentialSource
    header: SecretKey | None = None
    """A key that holds the whole value of the header, `Basic` and what follows: Argo Rollouts cannot make it."""

    @model_validator(mode="before")
    @classmethod
    def _numbers_too(cls, said: object) -> object:
        if isinstance(said, Mapping) and "username" in said:
            return {**said, "username": _name_too(said["username"])}
        return said


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

    bearer: CredentialSource | None = None
    """A token for `Authorization: Bearer`."""
    basic: BasicAuth | None = None
    certificate: ClientCertificate | None = None
    sigv4: SigV4 | None = None

    @model_validator(mode="after")
    def _is_one_kind(self) -> PrometheusAuth:
        said = [kind for kind in AuthKind if getattr(self, kind) is not None]
        if len(said) != 1:
            raise at_odds(" and ".join(said) or "nothing", "exactly one of " + ", ".join(AuthKind))
        return self

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

    @property
    def is_plain(self) -> bool:
        """Whether anyone on the way reads what is sent."""
        return urlsplit(self.url).scheme == "http"


def endpoint_too(address: object) -> object:
    """An address alone is an endpoint that asks for nothing."""
    return {"url": address} if isinstance(address, str) else address


Endpoint = Annotated[PrometheusEndpoint, BeforeValidator(endpoint_too, json_schema_input_type=Url | PrometheusEndpoint)]


_ANOTHER = "an address of its own under `{who}`, which asks for nothing or for what it can do"


def conflicts_for_rollouts(endpoint: PrometheusEndpoint) -> Iterator[SpecConflict]:
    """What Argo Rollouts lacks: a Secret for the header, or the way itself."""
    auth = endpoint.auth
    if auth is None:
        return
    where: Loc = ("auth", str(auth.kind))
    if auth.certificate:
        found = "a client certificate, which Argo Rollouts cannot show"
        yield SpecConflict(where, found, _ANOTHER.format(who="rollouts"))
    if auth.bearer and auth.bearer.secret is None:
        yield SpecConflict(where, "no Secret for Argo Rollouts", "`secret` too, or " + _ANOTHER.format(who="rollouts"))
    if auth.basic and auth.basic.header is None:
        expected = "`header`, a Secret's key with `Basic` and what follows, or " + _ANOTHER.format(who="rollouts")
        yield SpecConflict(where, "no header for Argo Rollouts, which cannot make it", expected)


def conflicts_for_keda(endpoint: PrometheusEndpoint) -> Iterator[SpecConflict]:
    """What KEDA lacks: every one of its secrets has to be in a Secret. The keys of AWS it has as its own role."""
    auth = endpoint.auth
    if auth is None or auth.kind is AuthKind.SIGV4:
        return
    wanted = dict(endpoint.secrets())
    if auth.basic and isinstance(auth.basic.username, str):
        wanted["auth", "basic", "username"] = CredentialSource(env="NAME")
    for where, source in wanted.items():
        if source.secret is None:
            yield SpecConflict(where, "no Secret for KEDA", "`secret` too, or " + _ANOTHER.format(who="keda"))
