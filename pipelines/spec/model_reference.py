"""The section `model`: which model version moves, and what it becomes."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from registry.conventions import alias_problem, is_version_number
from registry.model import Alias, ServingAliases
from tidegate.core.model import SpecModel, at_odds

AN_ALIAS = "an alias of the model, such as `champion` or `production`"


def _alias(text: str) -> str:
    """Anything that MLflow takes for one."""
    problem = alias_problem(text)
    if problem:
        raise at_odds(f"{text!r}: {problem}", AN_ALIAS)
    return text


def _alias_or_number(text: str) -> str:
    return text if is_version_number(text) else _alias(text)


AliasName = Annotated[str, AfterValidator(_alias)]


class ModelReference(SpecModel):
    """Which model version moves, and what it becomes: both are MLflow aliases, of the team's own choice."""

    example = "{name: support-llm}"
    name: str = Field(pattern=r"""^[^'"`\\/:\x00-\x1f]+$""")
    origin: Annotated[str, AfterValidator(_alias_or_number)] = Field(default=Alias.CHALLENGER.value, alias="from")
    target: AliasName = Field(default=Alias.CHAMPION.value, alias="to")
    previous: AliasName = Alias.PREVIOUS.value
    """The alias of the version that had `to` before."""

    @property
    def serving(self) -> ServingAliases:
        """As the registry writes them."""
        return ServingAliases(champion=self.target, previous=self.previous)

    @model_validator(mode="after")
    def _are_apart(self) -> ModelReference:
        if self.previous in (self.target, self.origin):
            taken = "to" if self.previous == self.target else "from"
            raise at_odds(f"`previous` and `{taken}` both {self.previous}", "two aliases")
        return self
