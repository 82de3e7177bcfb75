"""The bases of tidegate's data: values that never change and accept nothing they do not know."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """A frozen value: what rooms hand to each other and what crosses a process boundary as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class SpecModel(Value):
    """A part of a file that a person writes; unknown keys are errors."""
