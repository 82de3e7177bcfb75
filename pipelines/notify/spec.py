"""`notify` of a delivery's spec: who is told, and of what. Addresses are secrets: the spec only says where they are."""

from __future__ import annotations

from collections.abc import Mapping
from re import fullmatch
from typing import Literal, get_args

from pydantic import Field, model_validator

from tidegate.core.model import SpecModel, at_odds

About = Literal["opened", "stopped", "approval", "freeze", "closed"]
"""What is told; `pipelines.notify.news` says when."""


NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"


class AddressSpec(SpecModel):
    """Where messages go."""

    url_from_env: str = Field(json_schema_extra={"pattern": NAME})
    """The environment variable that holds the URL; whoever knows the URL may write there, so it stands nowhere else."""

    @model_validator(mode="before")
    @classmethod
    def _quotes_nothing(cls, said: object) -> object:
        """Refuse here what the loader would refuse with the words that it found: they may be the address."""
        name = said.get("url_from_env") if isinstance(said, Mapping) and len(said) == 1 else None
        if not isinstance(name, str) or not fullmatch(NAME, name):
            raise at_odds("something else", "url_from_env: NAME, of an environment variable; the URL stays out of here")
        return said


class NotifySpec(SpecModel):
    """One place that is told."""

    webhook: AddressSpec | None = None
    """Gets one JSON document for each message, by POST."""
    slack: AddressSpec | None = None
    """An incoming webhook of Slack, or of a chat that takes the same."""
    about: tuple[About, ...] = Field(default=get_args(About), min_length=1)

    @model_validator(mode="after")
    def _one_place(self) -> NotifySpec:
        if (self.webhook is None) == (self.slack is None):
            raise at_odds("both or none", "exactly one of webhook, slack in each item of the list")
        return self

    @property
    def form(self) -> Literal["webhook", "slack"]:
        """In which form it is told."""
        return "webhook" if self.webhook else "slack"

    @property
    def variable(self) -> str:
        """The name of the environment variable."""
        address = self.webhook or self.slack
        assert address is not None, "a spec with neither was refused"
        return address.url_from_env
