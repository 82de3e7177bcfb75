"""The burn rate gate: how fast an SLO's error budget may be spent while a version is on trial."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gates.shares import Sample
from tidegate.core.model import Contradiction, SpecModel
from tidegate.core.quantities import Duration, Percent, format_duration

PLACES = ("window", "region", "role", "version")
"""What a query may leave open, written as `{{.window}}`."""
PLACE = re.compile(r"\{\{\s*\.(\w+)\s*\}\}")


def _template(query: str) -> str:
    names = PLACE.findall(query)
    if unknown := sorted(set(names) - set(PLACES)):
        raise ValueError(f"only these open places: {', '.join(PLACES)}; not {', '.join(unknown)}")
    if "window" not in names:
        raise ValueError("a query with [{{.window}}], as in Sloth's events SLI")
    return query


Query = Annotated[str, AfterValidator(_template)]


_COUNTED_BY = ("slower", "errors_query", "total_query")


class BurnWindows(SpecModel):
    """A burn must be seen in both windows: in the long one to matter, in the short one to be going on still."""

    short: Duration = Field(gt=timedelta(0))
    long: Duration = Field(gt=timedelta(0))
    factor: float = Field(gt=1)
    """Times the speed that would spend exactly the whole budget over the SLO's own window."""

    def contradictions(self) -> Iterator[Contradiction]:
        """The short one is within the long one."""
        if self.short >= self.long:
            yield Contradiction(("short",), format_duration(self.short), f"less than {format_duration(self.long)}")


class SlowerThan(SpecModel):
    """Events are answered requests; those that took longer are bad."""

    metric: Literal["ttft", "itl", "e2e"]
    """To the first token, between tokens (the mean of one request), to the last token."""
    than: Duration = Field(gt=timedelta(0))
    """An edge of the engine's histogram of that time: what lies between two edges, nobody can tell."""


class BurnRateGate(SpecModel):
    """No pair of windows may show a burn, and the budget's slow burn must be disproven."""

    slo: str | None = Field(default=None, min_length=1)
    """The name of an SLO that says the objective and what is counted. Whoever knows SLOs looks it up before
    anything is judged: what is judged has an objective."""
    objective: Percent | None = Field(default=None, gt=0, lt=1)
    """The share of good events that the SLO promises; 0.999 is 99.9 %."""
    slower: SlowerThan | None = None
    """What is bad, when it is no failed request: the canary's own times as its engines counted them."""
    errors_query: Query | None = None
    """PromQL for bad events. Without queries, the requests and errors of the canary that the proxy counted."""
    total_query: Query | None = None
    """PromQL for all events."""
    counted_as: Literal["rate", "increase"] = "rate"
    """What the queries give: events a second, as Sloth's examples do, or events within the window."""
    # Factors: Google, The Site Reliability Workbook, chapter 5, table 5-8. There the windows are 1 h and 5 min, 6 h
    # and 30 min; a stage lasts minutes, so they are a twelfth of that, and each pair keeps its ratio of 12. A delivery
    # knows how long its stages last, and shrinks them further (`gates.burn.windows`).
    fast: BurnWindows = BurnWindows(short=timedelta(seconds=25), long=timedelta(minutes=5), factor=14.4)
    slow: BurnWindows = BurnWindows(short=timedelta(seconds=150), long=timedelta(minutes=30), factor=6)
    min_events: Sample = 40
    """In the long window before a fail, and in all before a pass: three requests are no burn."""

    @property
    def budget(self) -> float:
        """The share of events that may be bad."""
        assert self.objective is not None, f"nobody has looked up the SLO {self.slo}"
        # Without the dust of 1 - 0.9: a bound of 14.399999 bad events is not what anybody means.
        return round(1 - self.objective, 12)

    def contradictions(self) -> Iterator[Contradiction]:
        """An objective or an SLO that has one; one way to count; factors that some share of bad events can reach."""
        if self.slo is not None:
            for name in ("objective", *_COUNTED_BY):
                if getattr(self, name) is not None:
                    yield Contradiction((name,), "one beside `slo`", "either of both: the SLO says it already")
            return
        if self.objective is None:
            yield Contradiction(("objective",), "nothing", "an objective, or the name of an SLO at `slo`")
            return
        if (self.errors_query is None) != (self.total_query is None):
            absent = "errors_query" if self.errors_query is None else "total_query"
            yield Contradiction((absent,), "nothing", "a query, or neither of both")
        if self.slower and (self.errors_query or self.total_query):
            yield Contradiction(("slower",), "times and queries", "one of both")
        yield from self.out_of_reach()

    def out_of_reach(self) -> Iterator[Contradiction]:
        """Pairs whose factor not even a version with bad events only would come to."""
        for name, pair in (("fast", self.fast), ("slow", self.slow)):
            if pair.factor * self.budget >= 1:
                most = f"less than {1 / self.budget:g}: no more than all events can be bad"
                yield Contradiction((name, "factor"), f"{pair.factor:g}", most)


def filled(query: str, *, window: timedelta, places: dict[str, str]) -> str:
    """The query with nothing left open; `places` are the labels of an arm."""
    known = places | {"window": f"{round(window / timedelta(milliseconds=1))}ms"}
    return PLACE.sub(lambda place: known[place[1]].replace("\\", "\\\\").replace('"', '\\"'), query)
