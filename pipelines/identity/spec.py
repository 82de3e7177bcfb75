"""`approvers` of `trust.yaml`: whose keys and which issuers say who a person is, and who belongs to which group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from tidegate.core.model import Contradiction, SpecModel, at_odds
from tidegate.core.quantities import Duration

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def _believable(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("an https address") from None
    plain = parts.scheme == "http" and parts.hostname in LOOPBACK
    if not parts.hostname or parts.username is not None or not (parts.scheme == "https" or plain):
        raise ValueError("an https address without user info")
    return url


class IssuerSpec(SpecModel):
    """An OIDC issuer whose tokens say who somebody is."""

    issuer: str
    """As the tokens' `iss` has it."""
    audience: str = Field(default="tidegate", min_length=1)
    """For whom tokens must be: this, or this with `:` and a statement's digest."""
    jwks_file: Path | None = None
    """Its public keys, as a file beside this one; or where they are served:"""
    jwks_url: str | None = None
    identity_claim: str = Field(default="sub", min_length=1)
    """Which claim names the person, such as `email`."""
    groups_claim: str | None = None
    """Which claim lists the person's groups; none is believed unless it is named."""
    binding: Literal["statement", "lifetime"] = "statement"
    """Whether a token must carry the statement's digest, as `nonce` or in its audience; `lifetime` lets one do that
    does not, until it is `max_age` old."""
    max_age: Duration = timedelta(minutes=10)
    """Of tokens with `binding: lifetime`."""

    @field_validator("issuer")
    @classmethod
    def _of_https(cls, url: str) -> str:
        return _believable(url)

    @field_validator("jwks_url")
    @classmethod
    def _keys_of_https(cls, url: str | None) -> str | None:
        return url if url is None else _believable(url)

    @model_validator(mode="after")
    def _has_keys(self) -> IssuerSpec:
        if (self.jwks_file is None) == (self.jwks_url is None):
            found = "neither" if self.jwks_file is None else "both"
            raise at_odds(found, "one of `jwks_file` and `jwks_url`")
        return self


class ApproversSpec(SpecModel):
    """Who can prove who they are."""

    allowed_signers: Path | None = None
    """A file as ssh-keygen(1) has it: people, and their public keys."""
    oidc: tuple[IssuerSpec, ...] = ()
    groups: Mapping[str, tuple[str, ...]] = {}
    """Who belongs to which group, by the names that keys and issuers have for people."""
    aliases: Mapping[str, tuple[str, ...]] = {}
    """Other names of the same person, who counts once under all of them."""

    @property
    def anybody(self) -> bool:
        """Whether there is anybody who could prove anything."""
        return self.allowed_signers is not None or bool(self.oidc)

    def contradictions(self) -> Iterator[Contradiction]:
        """A name that would be two people."""
        seen: dict[str, str] = {}
        for person, names in self.aliases.items():
            for name in names:
                if seen.setdefault(name, person) != person or name in self.aliases:
                    yield Contradiction(("aliases", person), f"{name}, who is somebody else too", "one person a name")

    def person(self, name: str) -> str:
        """The one name under which somebody counts."""
        return next((person for person, names in self.aliases.items() if name in names), name)

    def groups_of(self, person: str) -> frozenset[str]:
        """The groups in which somebody stands, under any of their names."""
        return frozenset(
            group for group, names in self.groups.items() if any(self.person(name) == person for name in names)
        )
