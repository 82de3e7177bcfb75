"""What the load is asked to do, and what became of its requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import Field

from gates.evidence.request_record import RequestRecord
from tidegate.core.model import Value


class LoadPlan(Value):
    """What the load process is told."""

    entries: Mapping[str, str] = Field(min_length=1)
    """Region to the address its users talk to."""
    rate: float = Field(gt=0)
    """Requests a second and region. Arrivals are Poisson and wait for nobody: users do not know that
    a server is slow before they ask."""
    prompts: str
    """File with a prompt per line, or JSON lines with a `prompt` each."""
    model: str
    """What requests carry in their `model` field."""
    max_tokens: int = Field(ge=1)
    """The longest answer that a user asks for."""
    records: str
    """File to which a record per request is appended."""
    timeout_seconds: float = Field(default=120, gt=0)
    """Without a byte; the request then counts as failed."""
    regenerate: float = Field(default=0, ge=0, lt=1)
    """The share of answered requests whose users ask the same once more, because they did not want the answer. Those
    come on top of `rate`."""
    seed: int = 0
    """For arrivals and the choice of prompts."""
    parent: int
    """Process whose death ends the load."""


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
