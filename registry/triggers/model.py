"""The nouns of a trigger: what somebody wishes for, and what became of it."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum

from tidegate.core.model import Value

EVER = datetime.min.replace(tzinfo=UTC)
"""Since when a mark stands of which nobody knows since when."""


class Wish(Value):
    """A model version that somebody wants delivered: it carries the alias, or the tag that names the alias.

    Two events with the same three names are one wish, for as long as the version carries the mark.
    """

    model: str
    version: str
    """Its number in MLflow, as text."""
    alias: str
    """What deliveries of the model begin with: `model.from` of the spec."""

    def __str__(self) -> str:
        return f"models:/{self.model}/{self.version}@{self.alias}"


class State(StrEnum):
    """What became of a wish."""

    QUEUED = "queued"
    STARTED = "started"
    OVER = "over"
    """There was a delivery, or all tries to start one were in vain."""
    SUPERSEDED = "superseded"
    """A newer one went first, and the policy is that the newest wins."""
    WITHDRAWN = "withdrawn"
    """The version lost its mark before anything was started."""


class Entry(Value):
    """A wish in the inbox."""

    number: int
    """In the order of arrival."""
    wish: Wish
    since: datetime
    """The mark was set no earlier than shortly before; older deliveries of the version are no answer to it."""
    state: State = State.QUEUED
    tries: int = 0
    not_before: datetime = EVER
    """When the next try may be."""
    run: str | None = None
    """What was started for it, as the starter named it: a process, a workflow."""
    delivery: str | None = None
    """Its delivery's id, once the ledger has it."""
    note: str = ""
    """One line for people."""
