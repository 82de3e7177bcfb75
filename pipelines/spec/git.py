"""`git` of a delivery's spec: the files in which a team's repository says what its regions serve."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import PurePosixPath
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from tidegate.core.access import AccessPart, CredentialSource
from tidegate.core.model import SpecConflict, SpecModel, at_odds
from tidegate.core.units import Duration

_ADDRESSES = "ssh://HOST/PATH, USER@HOST:PATH, https://HOST/PATH or file:///PATH, without a password"
_OF_SSH = re.compile(r"(?P<user>[\w.-]+@)?(?P<host>[A-Za-z0-9][\w.-]*):(?P<path>[^\s:-][^\s:]*)")
_SCHEMES = {"ssh", "https", "http", "file"}


def _an_address(value: object) -> object:
    """Of an address that is wrong nothing is quoted: it may hold a password."""
    if isinstance(value, str):
        parts = urlsplit(value) if "://" in value and value.isprintable() and " " not in value else None
        plain_ssh = parts is not None and parts.scheme == "ssh" and parts.password is None
        named = parts is not None and bool(parts.hostname) and not (parts.hostname or "").startswith("-")
        if parts is None and _OF_SSH.fullmatch(value):
            return value
        if parts and parts.scheme == "file" and not parts.netloc and ".." not in PurePosixPath(parts.path).parts:
            return value
        if parts and parts.scheme in _SCHEMES - {"file"} and named and (plain_ssh or "@" not in parts.netloc):
            return value
    raise at_odds("something else", _ADDRESSES)


RepositoryUrl = Annotated[str, BeforeValidator(_an_address)]


def _a_branch(name: str) -> str:
    wrong = re.search(r"[\x00-\x20~^:?*\[\\\x7f]|\.\.|@\{|//|\.lock(/|$)|/\.|^[-./]|[./]$", name)
    if wrong or not name or name == "@":
        raise ValueError("a branch's name, without refs/heads")
    return name


def _inside(path: str) -> str:
    parts = path.split("/")
    if not path.isprintable() or "\\" in path or any(part in ("", ".", "..") for part in parts) or ".git" in parts:
        raise ValueError("a path of a file from the repository's root")
    return path


InnerFile = Annotated[str, AfterValidator(_inside)]

PLACEHOLDERS = ("image", "repository", "digest", "version", "engine", "model", "region", "delivery")
"""What values may be made of; `{region}` stands in paths, objects and fields too."""
_POINTER = re.compile(r"(/([^~/\s]|~0|~1)+)+")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def filled(text: str, values: Mapping[str, str]) -> str:
    """With every placeholder replaced that is known; others stay."""
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), text)


class GitFileSpec(SpecModel):
    """A YAML file that says what a region serves, or what all of them do."""

    path: InnerFile
    """From the repository's root; with `{region}` there is one for each region."""
    paths: Mapping[str, InnerFile] = {}
    """By region, where `path` does not fit."""
    object: str = Field(default="", pattern=r"^([A-Za-z]+/[^\s/]+)?$")
    """`KIND/NAME` of the document that is meant, of a file with several."""
    set: Mapping[str, str] = Field(min_length=1)
    """What is written, by a JSON pointer to a value that has to be there already."""

    @field_validator("set")
    @classmethod
    def _can_be_set(cls, said: Mapping[str, str]) -> Mapping[str, str]:
        for field, value in said.items():
            if not _POINTER.fullmatch(field):
                raise ValueError("a JSON pointer, such as /image/digest")
            unknown = [name for name in _PLACEHOLDER.findall(value) if name not in PLACEHOLDERS]
            if unknown:
                known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
                raise ValueError(f"texts of {known}, and not of {{{unknown[0]}}}")
            if not value.isprintable():
                raise ValueError("texts of one line")
        return said

    @property
    def is_of_each_region(self) -> bool:
        """Whether regions differ in what is written, or where; else the file speaks for all of them at once."""
        texts = (self.path, self.object, *self.set, *self.set.values())
        return bool(self.paths) or any("{region}" in text for text in texts)


class GitBasicAuth(AccessPart):
    """Name and password, or a token in the password's place."""

    username: str = Field(min_length=1, pattern=r"^[^:\s]+$")
    password: CredentialSource


class GitSshAuth(AccessPart):
    """A key of its own, such as a deploy key."""

    key: CredentialSource
    known_hosts: CredentialSource | None = None
    """Keys of the host, as a file of known hosts has them; without it the usual files of ssh are read."""


class GitAuth(AccessPart):
    """Who pushes; without it git's own ways are tried: credential helpers, ssh's agent and keys."""

    one_of = ("basic", "bearer", "ssh")
    basic: GitBasicAuth | None = None
    bearer: CredentialSource | None = None
    ssh: GitSshAuth | None = None

    def sources(self) -> Iterator[tuple[tuple[str, ...], CredentialSource]]:
        """Every place of a secret, by its keys below this one."""
        if self.basic:
            yield ("basic", "password"), self.basic.password
        if self.bearer:
            yield ("bearer",), self.bearer
        if self.ssh:
            yield ("ssh", "key"), self.ssh.key
            if self.ssh.known_hosts:
                yield ("ssh", "known_hosts"), self.ssh.known_hosts


class AuthorSpec(SpecModel):
    """Who has written the commits."""

    name: str = Field(default="tidegate", pattern=r"^[^<>\n]+$")
    email: str = Field(default="tidegate@localhost", pattern=r"^[^<>\s]+$")


class ArgoCdSpec(SpecModel):
    """The Application that brings the repository's files into a region."""

    application: str = Field(min_length=1)
    """Its name; `{region}` stands for the region."""
    namespace: str = "argocd"
    context: str | None = None
    """Of the kubeconfig, where Argo CD runs; without it the region's own cluster."""


class FluxSpec(SpecModel):
    """The Kustomization that brings them."""

    kustomization: str = Field(min_length=1)
    """Its name; `{region}` stands for the region."""
    namespace: str = "flux-system"
    context: str | None = None
    """Of the kubeconfig, where Flux runs; without it the region's own cluster."""


class SyncSpec(SpecModel):
    """Who applies what Git says, and how long that may take."""

    one_of = ("argo_cd", "flux")
    argo_cd: ArgoCdSpec | None = None
    flux: FluxSpec | None = None
    within: Duration = Field(default=timedelta(minutes=15), gt=timedelta(0))

    @property
    def tool(self) -> ArgoCdSpec | FluxSpec:
        """The one that is named."""
        named = self.argo_cd or self.flux
        assert named is not None, "a spec with neither was refused"
        return named


class GitSpec(SpecModel):
    """What a delivery writes to Git for each wave that it has promoted, and what it waits for."""

    repository: RepositoryUrl
    branch: Annotated[str, AfterValidator(_a_branch)] = "main"
    """What the clusters are brought from."""
    files: tuple[GitFileSpec, ...] = Field(min_length=1)
    patience: Duration = Field(default=timedelta(minutes=10), gt=timedelta(0))
    """How long the repository's host may be silent."""
    auth: GitAuth | None = None
    author: AuthorSpec = AuthorSpec()
    sync: SyncSpec | None = None

    @property
    def is_of_ssh(self) -> bool:
        """Whether ssh brings it."""
        return "://" not in self.repository or self.repository.startswith("ssh://")

    def contradictions(self) -> Iterator[SpecConflict]:
        """A way of proving who asks that the address does not take."""
        if self.auth and bool(self.auth.ssh) != self.is_of_ssh:
            kind = "ssh" if self.auth.ssh else "basic" if self.auth.basic else "bearer"
            expected = "`ssh`" if self.is_of_ssh else "`basic` or `bearer`"
            yield SpecConflict(("auth", kind), f"{kind} for {self.repository}", f"{expected}, as its address takes")

    def sources(self) -> Iterator[tuple[tuple[str, ...], CredentialSource]]:
        """Every place of a secret, by its keys below this one."""
        for where, source in self.auth.sources() if self.auth else ():
            yield ("auth", *where), source


def git_conflicts(git: GitSpec, regions: Iterable[str]) -> Iterator[SpecConflict]:
    """Paths of regions that the delivery does not have, or not of all that it has."""
    known = list(regions)
    for index, file in enumerate(git.files):
        for region in file.paths:
            if region not in known:
                yield SpecConflict(("files", index, "paths", region), "an unknown region", "one of " + ", ".join(known))
