"""`metrics:` of a delivery: how often Prometheus scrapes its engines, and how often evidence is looked at therefore."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from pydantic import Field

from gates.spec import USUAL_LOOK
from rollouts.scrape import INTERVAL_SECONDS
from tidegate.core.model import Contradiction, SpecModel
from tidegate.core.quantities import Duration, format_duration

ON_THIS_MACHINE = timedelta(seconds=INTERVAL_SECONDS)
IN_CLUSTERS = timedelta(seconds=5)
"""Unless the spec says otherwise: a third of what is usual, because a canary's users wait for the third scrape."""
SCRAPES = 3
"""In a look at least: arms are scraped at different moments, and what one of them shows early must be a small part."""


class MetricsSpec(SpecModel):
    """What is asked of Prometheus before gates ask anything."""

    # Above 30 s no rate over a minute, as SLOs and autoscalers ask for, has two samples.
    scrape_interval: Duration | None = Field(default=None, ge=timedelta(seconds=1), le=timedelta(seconds=30))
    """Between two scrapes of an engine: 5 s in clusters, unless told; 2 s on this machine, whatever is told."""

    def of_machine(self) -> Iterator[Contradiction]:
        """The Prometheus of the fleet on this machine is our own, and one for all deliveries."""
        if self.scrape_interval not in (None, ON_THIS_MACHINE):
            found = format_duration(self.scrape_interval or ON_THIS_MACHINE)
            expected = f"{format_duration(ON_THIS_MACHINE)}, in which the fleet on this machine scrapes"
            yield Contradiction(("scrape_interval",), found, expected)


def look_of(asked: timedelta | None, interval: timedelta) -> timedelta:
    """Between two batches of evidence: as asked, else three scrapes, and 10 s at least."""
    return asked or max(SCRAPES * interval, USUAL_LOOK)


def too_soon(asked: timedelta | None, interval: timedelta) -> Iterator[Contradiction]:
    """A look that does not have three scrapes of each arm in it."""
    if asked and asked < SCRAPES * interval:
        three = format_duration(SCRAPES * interval)
        expected = f"at least {three}, three scrapes: `metrics.scrape_interval` is {format_duration(interval)}"
        yield Contradiction((), format_duration(asked), expected)
