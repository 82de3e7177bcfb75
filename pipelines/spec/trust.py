"""`trust.yaml`: whom and what a delivery believes. It stands outside MLflow, with the one who operates the deliveries.

Approvers with their keys and issuers, keys of ledgers, signers of engine images, and what a spec may reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from engine_images.arguments.validation import external_references
from engine_images.spec import EngineSettings
from tidegate.core.model import SpecConflict, SpecModel

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


HttpsUrl = Annotated[str, AfterValidator(_believable)]


class IssuerSpec(SpecModel):
    """An OIDC issuer whose tokens say who somebody is: each issued for one statement, whose digest it carries."""

    one_of = ("jwks_file", "jwks_url")
    issuer: HttpsUrl
    """As the tokens' `iss` has it."""
    audience: str = Field(default="tidegate", min_length=1)
    """For whom tokens must be: this with `:` and the statement's digest, or this with the digest as `nonce`."""
    jwks_file: Path | None = None
    """Its public keys, as a file next to this one; or where they are served:"""
    jwks_url: HttpsUrl | None = None
    identity_claim: str = Field(default="sub", min_length=1)
    """Which claim names the person, such as `email`."""
    groups_claim: str | None = None
    """Which claim lists the person's groups; none is believed unless it is named."""


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

    def contradictions(self) -> Iterator[SpecConflict]:
        """A name that would be two people, an issuer whose second entry nobody would read."""
        issuers = [each.issuer for each in self.oidc]
        for index, issuer in enumerate(issuers):
            if (first := issuers.index(issuer)) < index:
                found = f"{issuer}, as in oidc[{first}]"
                yield SpecConflict(("oidc", index, "issuer"), found, "one entry an issuer")
        seen: dict[str, str] = {}
        for person, names in self.aliases.items():
            for name in names:
                if seen.setdefault(name, person) != person or name in self.aliases:
                    yield SpecConflict(("aliases", person), f"{name}, who is somebody else too", "one person a name")

    def person(self, name: str) -> str:
        """The one name under which somebody counts."""
        return next((person for person, names in self.aliases.items() if name in names), name)

    def groups_of(self, person: str) -> frozenset[str]:
        """The groups in which somebody stands, under any of their names."""
        return frozenset(
            group for group, names in self.groups.items() if any(self.person(name) == person for name in names)
        )


OF_SPECS = "TIDEGATE_SPEC_"
"""Variables that begin so are for specs to name."""
OUR_OWN = "TIDEGATE_"
"""All others that begin so are tidegate's own, its secrets among them: no spec may name one, whatever a file says."""
OUR_FILES = Path("/run/secrets/tidegate")
"""What lies below is for specs to name."""


class SpecTrust(SpecModel):
    """What specs may name."""

    variables: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], ...] = ()
    """Environment variables that a spec may name, besides those that begin with `TIDEGATE_SPEC_`. Others that begin
    with `TIDEGATE_` are tidegate's own, and no spec's to name."""
    plugins: Mapping[str, tuple[str, ...]] = {}
    """Of arguments of vLLM that a spec may not set by itself, the values that it may: `middleware: [acme.Limits]`,
    `speculative-config.model: [/draft]`."""
    commands: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Programs that gates may start, as `run` names them. Each may do whatever the one may who carries deliveries."""
    files: tuple[Path, ...] = ()
    """Files with credentials that a spec may name, or folders of them, besides those below /run/secrets/tidegate."""
    endpoints: tuple[str, ...] = ()
    """HOST or HOST:PORT of judges, and of Prometheus with credentials, that may be asked without TLS, besides this
    machine and services of a cluster."""

    pods: bool = False
    """Whether `fleet.patches` are taken: they may run any program in pods, as any user."""
    secrets: tuple[str, ...] = ()
    """Secrets of the namespace that patches may name, besides those that other fields name."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """A path that may begin anywhere, and a variable that tidegate keeps to itself."""
        for index, variable in enumerate(self.variables):
            if not self.may_read(variable):
                expected = f"no variable of tidegate itself; a name that begins with {OF_SPECS} needs no entry"
                yield SpecConflict(("variables", index), variable, expected)
        for index, file in enumerate(self.files):
            if not file.is_absolute() or ".." in file.parts:
                yield SpecConflict(("files", index), str(file), "a path that begins with `/` and has no `..`")

    def may_read(self, variable: str) -> bool:
        """Whether a spec may name that variable."""
        return variable.startswith(OF_SPECS) or (variable in self.variables and not variable.startswith(OUR_OWN))

    def may_open(self, file: Path) -> bool:
        """Whether a spec may name that file, a path without `..`, as the place of a credential."""
        return any(file.is_relative_to(each) for each in (OUR_FILES, *self.files))

    def refused_arguments(self, settings: EngineSettings) -> Iterator[tuple[str, str]]:
        """Arguments of vLLM, with each value, that only the operator may allow, and has not."""
        asked = external_references(settings.vllm.args)
        return ((argument, said) for argument, said in asked if said not in self.plugins.get(argument, ()))


class EngineTrust(SpecModel):
    """`engines` of the trust file. What is left out is not asked for."""

    keys: tuple[Path, ...] = ()
    """Public keys (ECDSA P-256, PEM) of those who build engines; one of them has to have signed an image and its
    engine's manifest. Paths start at the trust file."""
    images: tuple[str, ...] = Field(default=())
    """Repositories that engines may come from: REGISTRY/REPOSITORY, or REGISTRY/PATH/* for all below a path."""


class LedgerTrust(SpecModel):
    """Whose events count. Where keys are named, an event that none of them signed ends whatever reads it."""

    keys: tuple[Path, ...] = ()
    """Public keys in PEM, ECDSA on P-256, of everything that carries deliveries."""


class Trust(SpecModel):
    """What may be believed. What is not named here is believed as far as it can be checked without a key."""

    api_version: Literal["tidegate/v1"] = Field(default="tidegate/v1", alias="apiVersion")
    kind: Literal["Trust"] = "Trust"
    spec: SpecTrust = SpecTrust()
    engines: EngineTrust = EngineTrust()
    ledger: LedgerTrust = LedgerTrust()
    approvers: ApproversSpec = ApproversSpec()


@dataclass(frozen=True)
class Trusted:
    """A trust file as it was read."""

    trust: Trust
    folder: Path
    """Where it lies; relative paths in it start here."""
