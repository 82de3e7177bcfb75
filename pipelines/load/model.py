"""What loads are asked to do: of users who are played, and of blocks that two versions are compared by."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from gates.evidence.request_record import RequestRecord
from tidegate.core.model import Value


class LoadTotals(Value):
    """What became of all requests that ended."""

    requests: int
    failed: int
    """Not answered in full with a 2xx; includes `cut` and 4xx."""
    cut: int
    """Streams that began and did not end."""


def totals(records: Iterable[RequestRecord]) -> LoadTotals:
    """Count what ended, and how."""
    requests = failed = cut = 0
    for record in records:
        requests += 1
        failed += not record.ok
        cut += record.cut
    return LoadTotals(requests=requests, failed=failed, cut=cut)


CONCURRENCY_OF_A_PROCESS = 64
"""Streams at once that one process of a load follows."""
RATE_OF_A_PROCESS = 100.0
"""Requests a second of one process: beyond, tokens wait for the process and not for the engine, and are timed late."""


class LoadShape(StrEnum):
    """How much of its load a block brings at which time."""

    STEADY = "steady"
    """All of it, all the time."""
    RAMP = "ramp"
    """From a tenth to all of it."""
    SPIKE = "spike"
    """Three times as much in the middle third."""

    def at(self, part: float) -> float:
        """Of the load that was asked for, once so much of the block is over, 0 to 1."""
        if self is LoadShape.RAMP:
            return max(0.1, min(part, 1.0))
        return 3.0 if self is LoadShape.SPIKE and 1 / 3 <= part < 2 / 3 else 1.0

    @property
    def peak(self) -> float:
        """The most that it ever asks for."""
        return 3.0 if self is LoadShape.SPIKE else 1.0


class LoadRequest(Value):
    """One request to send."""

    prompt: str
    max_tokens: int = Field(ge=1)


class LoadOrder(Value):
    """Load on one address: a block of it, or that of users without end."""

    url: str
    """Without `/v1`."""
    model: str
    """What requests carry in their `model` field."""
    region: str
    role: str = ""
    """`stable` or `canary`, as records say it; empty where answers say who gave them."""
    version: str = ""
    """The same."""
    shape: LoadShape = LoadShape.STEADY
    seconds: float | None = Field(default=None, gt=0)
    """After that no request is sent; those under way may end. None for no end."""
    concurrency: int | None = Field(default=None, ge=1)
    """Requests in flight: who has an answer asks again."""
    rate: float | None = Field(default=None, gt=0)
    """Requests a second instead: arrivals are Poisson and wait for nobody, since users do not know that a server is
    slow before they ask."""
    regenerate: float = Field(default=0, ge=0, lt=1)
    """The share of answered requests whose users ask the same once more, because they did not want the answer. Those
    come on top of `rate`."""
    seed: int
    """Of arrivals and of the order of requests: two orders with one seed send the same."""

    @model_validator(mode="after")
    def _one_of_the_two(self) -> Self:
        if (self.concurrency is None) == (self.rate is None):
            raise ValueError("exactly one of concurrency, rate")
        return self

    def part(self, index: int, of: int) -> LoadOrder | None:
        """What one of several processes does of it; None when there is nothing left for that one."""
        if self.rate is not None:
            return self.model_copy(update={"rate": self.rate / of, "seed": self.seed * of + index})
        whole, rest = divmod(self.concurrency or 0, of)
        mine = whole + (index < rest)
        return self.model_copy(update={"concurrency": mine, "seed": self.seed * of + index}) if mine else None


class LoadPlan(Value):
    """What a process of a load is told when it starts."""

    orders: tuple[LoadOrder, ...] = Field(min_length=1)
    """One block, or the users of every region."""
    requests: Path
    """File of JSON lines, each a `LoadRequest`."""
    records: Path
    """File to which a record per request is appended."""
    timeout_seconds: float = Field(default=120, gt=0)
    """Without a byte; the request then counts as failed. A block ends that long after its last request at most."""
    describes: bool = False
    """Whether records say of prompts what drift looks at."""
    gate: Path | None = None
    """File that is locked until all processes of the load are ready; None where there is one."""
    parent: int
    """Process whose death ends this one."""
