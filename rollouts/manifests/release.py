"""What is rendered beside the spec: one engine for one region, and how it is put on trial."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tidegate.core.model import Value

Percentage = Annotated[int, Field(ge=0, le=100)]


class Release(Value):
    """One engine in one region. Two regions of a delivery differ in `region` alone."""

    delivery: str
    """The delivery's name, and that of its Rollout."""
    region: str
    version: str
    """The model version in the registry, such as `7`."""
    digest: str
    """SHA-256 over the model version's files, as hex digits."""
    image: str
    """REGISTRY/REPOSITORY@DIGEST: a tag may mean something else tomorrow."""
    public_keys: str = ""
    """Of whoever builds engines, one PEM after the other: an engine whose manifest none of them signed does not start.
    Nobody is asked for when empty."""
    accelerator: str = "cpu"
    """As the delivery's `engine.accelerator` names it; `cpu` asks for no GPU."""
    accelerators: int = 1
    """As `engine.accelerator_count`: how many one engine takes."""


class Trial(Value):
    """How much a canary gets, one thing after the other."""

    mirror: Percentage = 100
    """Percent of requests copied to it before it gets users; 0 for none."""
    weights: tuple[Annotated[int, Field(ge=1, le=99)], ...] = (5, 25, 50)
    """Percent of users, rising; empty when it gets none before it is promoted."""
