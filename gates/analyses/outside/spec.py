"""What a spec says of a gate that is asked outside: whom to ask, for how long, and what a drop may be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, field_validator

from gates.model import Sample, Share
from tidegate.core.durations import Duration, format_duration
from tidegate.core.model import SpecConflict, SpecModel, at_odds

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
FACTS = re.compile(r"TIDEGATE_(GATE|STAGE|DELIVERY|REGION|MODEL|(STABLE|CANARY)_(URL|VERSION))")
"""Variables that a command gets anyway."""


def _variable(name: object) -> object:
    """Not quoted where it is no name: it may be the secret itself."""
    if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
        raise at_odds("something else", "the name of an environment variable; the secret itself stays outside")
    return name


def _relative(path: Path) -> Path:
    if path.is_absolute() or ".." in path.parts:
        raise ValueError("a path below the spec's folder")
    return path


RelativePath = Annotated[Path, AfterValidator(_relative)]


class AskedOutside(SpecModel):
    """What all of them have; an answer is a verdict, or scores of both arms, pair by pair."""

    within: Duration = Field(default=timedelta(minutes=10), gt=timedelta(0), le=timedelta(days=1))
    """For all tries together, and for an answer that is `running` first."""
    retries: int = Field(default=2, ge=0, le=10)
    """Of a question that found somebody or something not there."""
    max_drop: Share = 0.03
    """Where it answers with scores: how far the canary's mean, 0 to 1, may be below the stable's."""
    min_pairs: Sample = 10
    """Where it answers with scores: questions with a score of both arms."""


class AskedAgain(AskedOutside):
    """Those that may answer that there is no answer yet."""

    poll: Duration = Field(default=timedelta(seconds=10), ge=timedelta(seconds=1))
    """After an answer `running`, until it is asked again."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """A second question that would never be asked."""
        if self.poll >= self.within:
            expected = f"less than `within`, which is {format_duration(self.within)}"
            yield SpecConflict(("poll",), format_duration(self.poll), expected)


Words = tuple[Annotated[str, Field(min_length=1)], ...]


class ProgramGate(AskedOutside):
    """What a spec says of a program that a gate starts."""

    run: Words = Field(min_length=1)
    """Program and arguments. No shell reads them; `[sh, -c, "..."]` is one. It runs in the spec's folder."""
    files: tuple[RelativePath, ...] = ()
    """What it needs of the spec's folder: kept with the delivery, and brought to where a step runs."""
    variables: tuple[str, ...] = ()
    """Names of environment variables that it gets besides the usual ones; their values are masked in what is kept."""

    @field_validator("variables", mode="before")
    @classmethod
    def _names(cls, said: object) -> object:
        return [_variable(each) for each in said] if isinstance(said, list | tuple) else said


class CommandGate(ProgramGate, AskedAgain):
    """A command of yours says whether the canary is fine, or brings scores of both arms."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """As above; and a variable that would hide a fact."""
        yield from super().contradictions()
        for index, name in enumerate(self.variables):
            if FACTS.fullmatch(name):
                yield SpecConflict(("variables", index), name, "another name: that one tells it of the delivery")


class WebhookGate(AskedAgain):
    """A web service of yours says whether the canary is fine, or brings scores of both arms."""

    url: str = Field(pattern=r"^https?://[^\s/?#@]+(/[^\s#]*)?$")
    """Gets the question as JSON, by POST. No name or password before the host."""
    secret_env: str | None = None
    """Name of the environment variable with what is sent in `header`; without it nothing is sent."""
    header: str = Field(default="Authorization", pattern=r"^[A-Za-z0-9-]{1,64}$")
    timeout: Duration = Field(default=timedelta(seconds=30), gt=timedelta(0))
    """Of one request."""

    @field_validator("secret_env", mode="before")
    @classmethod
    def _name(cls, said: object) -> object:
        return said if said is None else _variable(said)

    @property
    def host(self) -> str:
        """Who is asked."""
        return urlsplit(self.url).hostname or ""
