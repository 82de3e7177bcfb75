"""Load in memory: engines of known speed, whose time passes as the clock's does."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from gates.evidence.request_record import RequestRecord
from pipelines.load import LoadOrder, LoadRequest, shuffled
from tidegate.core.clock import Clock
from tidegate.core.errors import OutsideError


class FakeLoads:
    """`BringLoad`: what each address makes of a load, by its tokens a second."""

    def __init__(self, folder: Path, clock: Clock, speeds: dict[str, float]) -> None:
        """`speeds` are those of addresses; one that is missing answers nothing."""
        self.folder, self.speeds, self.orders = folder, speeds, list[LoadOrder]()
        self.sent: list[tuple[str, str]] = []
        """Role and prompt of every request."""
        self.gone = False
        self._clock, self._random = clock, random.Random(0)

    async def block(
        self, name: str, order: LoadOrder, requests: Sequence[LoadRequest], processes: int
    ) -> Sequence[RequestRecord]:
        assert order.seconds is not None
        if self.gone:
            raise OutsideError("a process of the load ended by itself")
        self.orders.append(order)
        began = self._clock.now().timestamp()
        await self._clock.sleep(order.seconds)
        speed = self.speeds.get(order.url, 0.0) * self._random.lognormvariate(0, 0.03)
        shuffle = shuffled(requests, order.seed)
        records, at = [], 0.0
        while at < order.seconds:
            request = next(shuffle)
            self.sent.append((order.role, request.prompt))
            took = request.max_tokens / speed if speed else 1.0
            records.append(_record(order, request, began + at, took, ok=speed > 0))
            at += took
        return records


def _record(order: LoadOrder, request: LoadRequest, started: float, took: float, *, ok: bool) -> RequestRecord:
    return RequestRecord(
        started=started,
        region=order.region,
        role=order.role,
        version=order.version,
        status=200 if ok else 500,
        ok=ok,
        error="" if ok else "status",
        ttft_seconds=took / 10 if ok else None,
        itl_mean_seconds=took / request.max_tokens if ok else None,
        duration_seconds=took,
        output_tokens=request.max_tokens if ok else 0,
    )
