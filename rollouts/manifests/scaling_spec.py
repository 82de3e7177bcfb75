"""The part of `fleet` that says how many engines a region has: by load, and how many nodes wait for more."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum

from pydantic import Field

from tidegate.core.model import Contradiction, SpecModel
from tidegate.core.quantities import Duration, Percent, format_duration

LONGEST_WINDOW = timedelta(hours=1)
"""The API server refuses a longer `stabilizationWindowSeconds`."""


class Scaler(StrEnum):
    """Who changes the number of engines."""

    KEDA = "keda"
    """A ScaledObject, which asks Prometheus itself."""
    HPA = "hpa"
    """A HorizontalPodAutoscaler, which needs an adapter that serves the signals as external metrics."""


class AutoscaleSpec(SpecModel):
    """As many engines as the signals ask for; the signal that asks for most counts."""

    by: Scaler = Scaler.KEDA
    least: int = Field(ge=1)
    """Never fewer engines."""
    most: int = Field(ge=1)
    """Never more; the canary comes on top."""
    waiting: float | None = Field(default=4.0, gt=0)
    """Requests that wait, for each engine."""
    kv_cache: Percent | None = Field(default=0.75, gt=0, lt=1, validate_default=False)
    """Share of the KV cache in use, on average over engines."""
    ttft: Duration | None = Field(default=None, gt=timedelta(0))
    """Time to first token at the 95th percentile."""
    up_after: Duration = timedelta(seconds=30)
    """How long more has to be wanted before it is given."""
    down_after: Duration = timedelta(minutes=15)
    """How long less has to be wanted: an engine that goes takes minutes to come back."""

    def contradictions(self) -> Iterator[Contradiction]:
        """Bounds that leave nothing, no signal at all, engines that come and go, windows that Kubernetes refuses."""
        if self.least > self.most:
            yield Contradiction(("least",), str(self.least), f"at most `most`, which is {self.most}")
        if self.waiting is None and self.kv_cache is None and self.ttft is None:
            yield Contradiction(("waiting",), "no signal", "at least one of waiting, kv_cache, ttft")
        if self.down_after <= self.up_after:
            found = f"{format_duration(self.down_after)}, as soon as up"
            yield Contradiction(
                ("down_after",), found, f"more than `up_after`, which is {format_duration(self.up_after)}"
            )
        for name, window in {"up_after": self.up_after, "down_after": self.down_after}.items():
            if window > LONGEST_WINDOW:
                yield Contradiction((name,), format_duration(window), "at most 1h")


class WarmPoolSpec(SpecModel):
    """Placeholder pods that hold nodes with GPUs, and make room the moment that an engine needs theirs."""

    share: Percent = Field(default=0.15, gt=0, le=1, validate_default=False)
    """Of the region's engines; rounded up."""
    image: str = Field(default="registry.k8s.io/pause:3.10", pattern=r"^\S+$")
    """Any image that does nothing."""
