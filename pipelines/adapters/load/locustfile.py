"""Locust's part: it streams chat completions, of users without end or of one block of load, a record per request.

Runs in processes of its own (`process.py` starts them), because Locust replaces the standard library's sockets with
gevent's. Its plan comes in the environment, as JSON.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import time
from itertools import cycle
from typing import Any

import gevent
from gevent.pool import Group
from locust import FastHttpUser, LoadTestShape, task
from locust.contrib.fasthttp import FAILURE_EXCEPTIONS

from gates.evidence.request_record import Failure, RequestRecord
from pipelines.adapters.load.stream import HEADERS, PATH, StreamMeter, streamed_chat
from pipelines.load import LoadPlan, LoadRequest, shuffled
from tidegate.core.files import lock_open_file
from tidegate.core.names import ROLE_HEADER, VERSION_HEADER
from tidegate.core.text import lines_of

PLAN = LoadPlan.model_validate_json(os.environ["TIDEGATE_LOAD_PLAN"])
ORDERS = cycle(PLAN.orders)
PAUSE_SECONDS = 0.5
"""Of who got no answer, before they ask again: an engine that refuses at once is not worth a busy loop."""
SPAWN_RATE = 100
"""Users a second: a shape says how many there are, not how fast they come."""
PR_SET_PDEATHSIG = 1


class Asker(FastHttpUser):
    """One of a number of askers, each of which asks again once it has an answer; or the door through which all arrive
    who ask at a rate, each a greenlet, so that a slow answer delays no other one.
    """

    network_timeout, connection_timeout = PLAN.timeout_seconds, 5
    insecure = False
    concurrency = 100_000

    def __init__(self, environment: Any) -> None:
        self.order = next(ORDERS)
        self.host = self.order.url
        super().__init__(environment)
        self.dice = random.Random(f"{self.order.seed} {self.order.region}")
        self.begun, self.next_at, self.under_way = time.perf_counter(), 0.0, Group()

    @property
    def part(self) -> float:
        """How much of the block is over, 0 to 1; 0 of what has no end."""
        shape = self.environment.shape_class
        return shape.get_run_time() / self.order.seconds if shape and self.order.seconds else 0.0

    def wait_time(self) -> float:
        """Seconds to the next arrival of a Poisson process at the shape's peak; askers wait for answers alone."""
        if self.order.rate is None:
            return 0.0
        self.next_at += self.dice.expovariate(self.order.rate * self.order.shape.peak)
        return max(self.next_at - (time.perf_counter() - self.begun), 0.0)

    @task
    def come(self) -> None:
        """Ask and wait for the answer, or let one more arrive."""
        order, part = self.order, self.part
        if order.rate is None:
            if part >= 1 or not self._ask():
                gevent.sleep(PAUSE_SECONDS)
        # Thinning (Lewis and Shedler, 1979): of arrivals at the rate of the peak the shape keeps its part.
        elif part < 1 and self.dice.random() * order.shape.peak < order.shape.at(part):
            self.under_way.spawn(self._ask)

    def on_stop(self) -> None:
        """Let the answers that are under way arrive; Locust's stop timeout bounds the wait."""
        self.under_way.join()

    def _ask(self) -> bool:
        """Ask once, and write it down; whether there was a whole answer."""
        order, meter, request = self.order, StreamMeter(), next(REQUESTS[self.order.region])
        body = streamed_chat(order.model, request.prompt, max_tokens=request.max_tokens)
        started, begin = time.time(), time.perf_counter()
        with self.client.post(
            PATH, json=body, headers=HEADERS, name=order.region, stream=True, catch_response=True
        ) as answer:
            error = _follow(answer, meter, begin)
            answer.failure(error) if error else answer.success()
        told = answer.headers if answer.status_code else {}
        record = RequestRecord(
            started=started,
            region=order.region,
            role=order.role or told.get(ROLE_HEADER, ""),
            version=order.version or told.get(VERSION_HEADER, ""),
            status=answer.status_code or 0,
            ok=not error,
            cut=error == "cut",
            error=error,
            ttft_seconds=meter.first_token,
            itl_mean_seconds=meter.itl_mean,
            duration_seconds=time.perf_counter() - begin,
            output_tokens=meter.output_tokens,
        )
        RECORDS.write(record.model_dump_json().encode() + b"\n")
        return record.ok


class Block(LoadTestShape):
    """A block's shape, as Locust asks for it: once a second."""

    abstract = PLAN.orders[0].seconds is None

    def tick(self) -> tuple[int, float] | None:
        """Users now; None when the block is over."""
        order, elapsed = PLAN.orders[0], self.get_run_time()  # type: ignore[no-untyped-call]
        if order.seconds is None or elapsed >= order.seconds:
            return None
        most = 1.0 if order.concurrency is None else order.concurrency * order.shape.at(elapsed / order.seconds)
        return max(round(most), 1), SPAWN_RATE


def _follow(answer: Any, meter: StreamMeter, begin: float) -> Failure:
    """Read the answer to its end; the class of failure, empty when all is well."""
    if not answer.status_code:
        # What was waited for too long is the context of what the client raises.
        late = isinstance(answer.error, TimeoutError) or isinstance(answer.error.__context__, TimeoutError)
        return "timeout" if late else "connect"
    if answer.status_code // 100 != 2:
        _ = answer.content  # To its end, or the connection is of no use any more.
        return "status"
    try:
        # Line by line as they come; reading by size would wait for a full buffer.
        while line := answer.stream.readline(b"\n"):
            meter.feed(bytes(line), time.perf_counter() - begin)
    except FAILURE_EXCEPTIONS:
        return "cut"
    return meter.failure


# The kernel ends this process when its parent's ends, however that happens.
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() != PLAN.parent:
    raise SystemExit("the process that started the load is gone")
_ALL = [LoadRequest.model_validate_json(line) for line in lines_of(PLAN.requests.read_text(encoding="utf-8"))]
REQUESTS = {order.region: shuffled(_ALL, order.seed) for order in PLAN.orders}
# Unbuffered and appending: every record is one write, whole or not there.
RECORDS = PLAN.records.open("ab", buffering=0)
if PLAN.gate:
    # One that is late would stretch the block, and move its shape.
    PLAN.gate.with_suffix(f".{os.getpid()}").touch()
    with PLAN.gate.open("r+b") as gate:
        lock_open_file(gate, shared=True, seconds=60)
