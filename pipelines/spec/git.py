"""`git` of a delivery's spec: the files in which a team's repository says what its regions serve."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from tidegate.core.access import AccessPart, CredentialSource
from tidegate.core.model import SpecConflict, SpecModel, at_odds
from tidegate.core.units import Duration

_ADDRESSES = "ssh://HOST/PATH, USER@HOST:PATH, https://HOST/PATH or file:///PATH, without a password"
_ADDRESS = re.compile(
    r"(ssh://([\w.-]+@)?|https?://)[A-Za-z0-9\[][^\s/@]*/\S*"
    r"|([\w.-]+@)?[A-Za-z0-9][\w.-]*:[^\s:/-][^\s:]*|([\w.-]+@)[A-Za-z0-9][\w.-]*:/[^\s:]*"
    r"|file:///(?!(\S*/)?\.\.(/|$))\S+"
)


def _an_address(value: object) -> object:
    """Of an address that is wrong nothing is quoted: it may hold a password."""
    if not isinstance(value, str) or not _ADDRESS.fullmatch(value):
        raise at_odds("something else", _ADDRESSES)
    return value


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
"""What contents may be made of; `{region}` stands in paths too."""
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


def filled(text: str, values: Mapping[str, str]) -> str:
    """With every placeholder replaced that is known; others stay."""
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), text)


class GitFileSpec(SpecModel):
    """A file that says what a region serves, or what all of them do. All of it is the delivery's."""

    path: InnerFile
    """From the repository's root; with `{region}` there is one for each region."""
    content: str = Field(min_length=1)
    """The whole file."""

    @field_validator("content")
    @classmethod
    def _can_be_filled(cls, content: str) -> str:
        if unknown := [name for name in _PLACEHOLDER.findall(content) if name not in PLACEHOLDERS]:
            known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
            raise ValueError(f"a text with {known}, and not with {{{unknown[0]}}}")
        return content

    @model_validator(mode="after")
    def _says_where(self) -> GitFileSpec:
        if "{region}" in self.content and not self.is_of_each_region:
            raise at_odds("{region} in `content` and not in `path`", "a path with {region}: one file for each")
        return self

    @property
    def is_of_each_region(self) -> bool:
        """Whether there is one for each region; else it speaks for all of them at once."""
        return "{region}" in self.path


class GitAuth(AccessPart):
    """Who pushes by https; without it, and by ssh, git's own ways are tried: credential helpers, ssh's agent, keys."""

    username: str = Field(min_length=1, pattern=r"^[^:\s]+$")
    password: CredentialSource
    """Or a token."""


class AuthorSpec(SpecModel):
    """Who has written the commits."""

    name: str = Field(default="tidegate", pattern=r"^[^<>\n]+$")
    email: str = Field(default="tidegate@localhost", pattern=r"^[^<>\s]+$")


class GitSpec(SpecModel):
    """What a delivery writes to Git once it is over as delivered."""

    repository: RepositoryUrl
    branch: Annotated[str, AfterValidator(_a_branch)] = "main"
    """What the clusters are brought from."""
    files: tuple[GitFileSpec, ...] = Field(min_length=1)
    patience: Duration = Field(default=timedelta(minutes=10), gt=timedelta(0))
    """How long the repository's host may be silent."""
    auth: GitAuth | None = None
    author: AuthorSpec = AuthorSpec()

    def contradictions(self) -> Iterator[SpecConflict]:
        """A password that ssh does not take."""
        if self.auth and not self.repository.startswith("http"):
            expected = "none: by ssh the machine's own keys are tried"
            yield SpecConflict(("auth",), f"a password for {self.repository}", expected)
