"""Asks a command of the team's about both arms: once, in the offline stage, before users meet the version."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, field_validator

from gates.analyses.base import GateSettings, StageUse
from gates.model import GateOutcome, OutcomeName
from tidegate.core.model import Value, at_odds
from tidegate.core.units import Duration

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _variable(name: object) -> object:
    """Not quoted where it is no name: it may be the secret itself."""
    if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
        raise at_odds("something else", "the name of an environment variable; the secret itself stays outside")
    return name


def _relative(path: Path) -> Path:
    if path.is_absolute() or ".." in path.parts:
        raise ValueError("a path below the spec's folder")
    return path


class CommandGate(GateSettings):
    """A command of yours says whether the canary is fine."""

    name = "command"
    stages = (StageUse("offline"),)

    run: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)
    """Program and arguments. No shell reads them; `[sh, -c, "..."]` is one. It runs in the spec's folder."""
    files: tuple[Annotated[Path, AfterValidator(_relative)], ...] = ()
    """What it needs of the spec's folder: kept with the delivery, and brought to where a step runs."""
    variables: tuple[str, ...] = ()
    """Names of environment variables that it gets besides the usual ones; their values are masked in what is kept."""
    within: Duration = Field(default=timedelta(minutes=10), gt=timedelta(0), le=timedelta(days=1))
    """For all tries together."""
    retries: int = Field(default=2, ge=0, le=10)
    """Of a question that found something not there."""

    @field_validator("variables", mode="before")
    @classmethod
    def _names(cls, said: object) -> object:
        return [_variable(each) for each in said] if isinstance(said, list | tuple) else said


class AskedArm(Value):
    """One arm, as a command can ask it."""

    version: str
    url: str
    """Without `/v1`, below which it speaks OpenAI's API."""
    engine: str
    """A digest of what serves: equal where the same files are served with the same settings."""


class Question(Value):
    """What a command is asked about."""

    gate: str
    delivery: str
    stage: str
    region: str
    model: str
    """Under which name both arms serve."""
    stable: AskedArm
    canary: AskedArm

    def variables(self) -> Mapping[str, str]:
        """It as environment variables, whose names begin with `TIDEGATE_`."""
        facts: dict[str, str] = {}
        for name, fact in self.model_dump().items():
            facts |= {f"{name}_{key}": each for key, each in fact.items()} if isinstance(fact, dict) else {name: fact}
        return {f"TIDEGATE_{name.upper()}": fact for name, fact in facts.items()}


MOST_REASON = 500


def _one_line(text: str) -> str:
    printable = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(printable.split())[:MOST_REASON]


def _decided(outcome: GateOutcome) -> GateOutcome:
    if outcome not in (GateOutcome.PASS, GateOutcome.FAIL, GateOutcome.INCONCLUSIVE):
        raise ValueError("pass, fail or inconclusive")
    return outcome


class Answer(Value):
    """A command's verdict."""

    outcome: Annotated[OutcomeName, AfterValidator(_decided)]
    reason: Annotated[str, AfterValidator(_one_line)] = ""
    numbers: Mapping[
        Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")], Annotated[float, Field(allow_inf_nan=False)]
    ] = Field(default={}, max_length=50)


class Reply(Value):
    """An answer, and what is kept of how it was given."""

    answer: Answer
    output: str
    """Without any secret."""
