"""What of an SLO can be asked of one arm during a stage: which events, over which pairs of windows, by which labels."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from slo.durations import prometheus_duration
from slo.kubernetes.arm_query import Arm, longest_step, of_arm, quotient, series_of
from slo.kubernetes.burn import Pair, can_burn, paging, scaled
from slo.metrics import metric_of
from slo.metrics.vllm import VLLM
from slo.model import Events, Raw, Slo
from slo.windows import Windows
from tidegate.core.errors import UsageError
from tidegate.core.model import Value

BY_HASH: Arm = {"region": "{{args.region}}", "pod_template_hash": "{{args.pod-template-hash}}"}
"""Labels that the pod monitor sets on every series of an engine, and the arguments that choose among them."""

BY_VERSION: Arm = {"region": "{{args.region}}", "version": "{{args.version}}"}
"""For series that no pod exports of itself: those of proxies, judges and recording rules."""


class Stage(Value):
    """How long and how often a canary is asked."""

    length: timedelta = timedelta(minutes=30)
    interval: timedelta = timedelta(minutes=1)
    least_events: int = Field(default=50, ge=1)
    """In the long window; with fewer, nothing is said."""
    least_looks: int = Field(default=5, ge=1)
    """The same, where an SLO does not count events but looks at a level from time to time."""
    background: bool = False
    """Asked until the rollout ends, not a number of times."""


class Question(Value):
    """What a template asks."""

    events: Events
    arm: Arm
    pairs: tuple[Pair, ...] = Field(min_length=1)
    enough: tuple[str, int]
    """The name of an argument, and how many events it asks for by default."""


def question_of(slo: Slo, stage: Stage, windows: Windows) -> Question:
    """Every paging pair of `windows` that can fire within the stage.

    Raises:
        UsageError: when there is none, when bad events are not told from all, or when a query cannot be narrowed.
    """
    if slo.error_budget == 0:
        raise UsageError(f"{slo.id} has no error budget to burn", hint="promise less than 100 percent")
    pairs = [pair for pair in scaled(paging(windows), stage.length) if can_burn(pair, slo.error_budget)]
    if not pairs:
        raise UsageError(f"{slo.id} never burns fast enough to be judged: {1 / slo.error_budget:.3g} times at most")
    try:
        events = _events(slo.sli)
        arm = arm_of(events)
        of_arm(events.error_query, window="1m", arm=arm)
        step = longest_step(events.total_query)
    except ValueError as error:
        raise UsageError(f"{slo.id}: {error}") from error
    if not step:
        return Question(events=events, arm=arm, pairs=tuple(pairs), enough=("least-events", stage.least_events))
    long_enough = tuple(pair for pair in pairs if pair.long >= stage.least_looks * step)
    if not long_enough:
        length, every = prometheus_duration(stage.length), prometheus_duration(step)
        raise UsageError(f"{slo.id}: {length} is too short for {stage.least_looks} looks, one every {every}")
    return Question(events=events, arm=arm, pairs=long_enough, enough=("least-looks", stage.least_looks))


def arm_of(sli: Events) -> Arm:
    """The labels by which an arm's share of the events is known.

    Raises:
        ValueError: when a query is no PromQL that Prometheus 2 knows.
    """
    read = {metric_of(series) for query in (sli.error_query, sli.total_query) for series in series_of(query)}
    return BY_HASH if read <= set(VLLM) else BY_VERSION


def _events(sli: Events | Raw) -> Events:
    """A share that is written as a quotient is one of bad events over all."""
    if isinstance(sli, Events):
        return sli
    both = quotient(sli.error_ratio_query)
    if both is None:
        raise ValueError("its query is a share, not bad events over all, and how many there were is not known")
    return Events(error_query=both[0], total_query=both[1])
