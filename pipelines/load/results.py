"""What became of a load: evidence for gates, and the figures that people ask for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import ceil

from gates.evidence.batch import ArmLoad
from gates.evidence.request_record import RequestRecord
from tidegate.core.model import Value


class Quantiles(Value):
    """Of times in seconds; None where nothing was measured."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Quantiles:
        """The smallest values that 50, 95 and 99 % do not exceed."""
        found = sorted(value for value in values if value is not None)
        if not found:
            return cls()
        p50, p95, p99 = (found[ceil(len(found) * share) - 1] for share in (0.5, 0.95, 0.99))
        return cls(p50=p50, p95=p95, p99=p99)


class ArmResult(Value):
    """What one arm made of all blocks."""

    version: str
    engines: int
    requests: int
    failed: int
    errors: Mapping[str, int]
    """How many failed how: the classes of `RequestRecord.error`."""
    seconds: float
    """That it was under load."""
    requests_per_second: float
    tokens_per_second: float
    """Output tokens of requests answered in full, of all its engines."""
    ttft_seconds: Quantiles
    itl_seconds: Quantiles
    e2e_seconds: Quantiles
    tokens_per_cost: float | None = None
    """Output tokens for one unit of the currency; None without a price."""


class LoadResult(Value):
    """What a stage of load came to."""

    region: str
    shape: str
    blocks: int
    """On both arms; the first one of each, which warms it up, is not among them."""
    stable: ArmResult
    canary: ArmResult
    currency: str | None = None


def arm_load(records: Sequence[RequestRecord], *, engines: int, engine_hour: float | None) -> ArmLoad | None:
    """One block of one arm as evidence; None when no request ended."""
    if not records:
        return None
    began, ended = min(record.started for record in records), max(record.ended for record in records)
    return ArmLoad(
        requests=len(records),
        failed=sum(not record.ok for record in records),
        output_tokens=sum(record.output_tokens for record in records if record.ok),
        seconds=max(ended - began, 1e-3),
        engines=engines,
        engine_hour=engine_hour,
    )


def arm_result(version: str, loads: Sequence[ArmLoad], records: Sequence[RequestRecord]) -> ArmResult:
    """All blocks of one arm; times are of requests that were answered in full."""
    seconds, tokens = sum(load.seconds for load in loads), sum(load.output_tokens for load in loads)
    costs = [load.cost for load in loads if load.cost is not None]
    answered = [record for record in records if record.ok]
    return ArmResult(
        version=version,
        engines=max((load.engines for load in loads), default=1),
        requests=len(records),
        failed=len(records) - len(answered),
        errors=Counter(record.error for record in records if record.error),
        seconds=seconds,
        requests_per_second=len(answered) / seconds if seconds else 0.0,
        tokens_per_second=tokens / seconds if seconds else 0.0,
        ttft_seconds=Quantiles.of(record.ttft_seconds for record in answered),
        itl_seconds=Quantiles.of(record.itl_mean_seconds for record in answered),
        e2e_seconds=Quantiles.of(record.duration_seconds for record in answered),
        tokens_per_cost=tokens / sum(costs) if costs else None,
    )
