"""Brings blocks of load, with Locust: reads orders line by line, writes a record per request, says when each is over.

Runs in a process of its own (`blocks.py` starts several), because Locust replaces the standard library's sockets with
gevent's. Its plan comes in the environment, orders come on stdin, and answers go to stdout, all as JSON.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator
from itertools import count
from math import ceil
from typing import Any

import gevent
from gevent.fileobject import FileObjectThread
from gevent.pool import Group
from locust import FastHttpUser, LoadTestShape, User, constant, task
from locust.contrib.fasthttp import FAILURE_EXCEPTIONS
from locust.env import Environment

from gates.evidence.request_record import Failure, RequestRecord
from pipelines.adapters.load.death import die_with
from pipelines.adapters.load.stream import HEADERS, PATH, StreamMeter, streamed_chat
from pipelines.load.model import LoadOrder, LoadRequest, WorkerPlan
from pipelines.load.requests import shuffled
from tidegate.core.text import lines_of

CONNECT_SECONDS = 5
PAUSE_SECONDS = 0.5
"""Of who got no answer, before they ask again: an engine that refuses at once is not worth a busy loop."""
FOR_EVER = 86_400
"""Nobody waits that long: a block's end ends all waiting."""
SPAWN_RATE = 100
"""Users a second: a shape says how many there are, not how fast they come."""


class BlockShape(LoadTestShape):
    """An order's shape, as Locust asks for it: once a second."""

    def __init__(self, order: LoadOrder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Locust has no types here
        self._order = order

    def tick(self) -> tuple[int, float] | None:
        """Users now; None when the block is over."""
        order, elapsed = self._order, self.get_run_time()  # type: ignore[no-untyped-call]
        if elapsed >= order.seconds:
            return None
        if order.concurrency is None:
            return 1, SPAWN_RATE
        return max(round(order.concurrency * order.shape.at(elapsed / order.seconds)), 1), SPAWN_RATE


class Block:
    """One order on its way: its requests, and the records of those that ended."""

    def __init__(self, order: LoadOrder, requests: list[LoadRequest], plan: WorkerPlan, records: Any) -> None:
        self.order, self._plan, self._records = order, plan, records
        self._requests: Iterator[LoadRequest] = shuffled(requests, order.seed)
        self.begun = time.perf_counter()
        self.sent = 0

    def environment(self) -> Environment:
        """Locust's, for this block alone."""
        users = self._closed() if self.order.concurrency is not None else self._open()
        shape = BlockShape(self.order)
        # Whole seconds, and time to write down what was given up.
        grace = ceil(self._plan.timeout_seconds) + 1
        return Environment(user_classes=[users], shape_class=shape, stop_timeout=grace, catch_exceptions=False)

    def _closed(self) -> type[User]:
        block = self

        class Asker(FastHttpUser):
            """Asks again as soon as it has an answer."""

            host, wait_time = self.order.url, constant(0)
            network_timeout, connection_timeout = self._plan.timeout_seconds, CONNECT_SECONDS
            insecure = False

            @task
            def ask(self) -> None:
                if time.perf_counter() - block.begun >= block.order.seconds or not block.ask(self.client):
                    gevent.sleep(PAUSE_SECONDS)

        return Asker

    def _open(self) -> type[User]:
        block, rate, rng = self, self.order.rate or 1.0, random.Random(self.order.seed)

        class Door(FastHttpUser):
            """All who arrive; each is a greenlet, so that a slow answer delays no other one."""

            host, wait_time = self.order.url, constant(FOR_EVER)
            network_timeout, connection_timeout = self._plan.timeout_seconds, CONNECT_SECONDS
            insecure = False
            concurrency = 100_000

            @task
            def arrivals(self) -> None:
                under_way, shape = Group(), block.order.shape
                at = rng.expovariate(rate * shape.peak)
                while at < block.order.seconds:
                    gevent.sleep(max(at - (time.perf_counter() - block.begun), 0))
                    # Thinning (Lewis and Shedler, 1979): of arrivals at the rate of the peak the shape keeps its part.
                    if rng.random() * shape.peak < shape.at(at / block.order.seconds):
                        under_way.spawn(block.ask, self.client)
                    at += rng.expovariate(rate * shape.peak)
                under_way.join()

        return Door

    def ask(self, client: Any) -> bool:
        """Send one request, follow its answer, write it down; whether it was answered in full."""
        request = next(self._requests)
        self.sent += 1
        started, begin = time.time(), time.perf_counter()
        meter = StreamMeter()
        body = streamed_chat(self.order.model, request.prompt, max_tokens=request.max_tokens)
        with client.post(
            PATH,
            json=body,
            headers=HEADERS,
            stream=True,
            catch_response=True,
        ) as answer:
            error = _follow(answer, meter, begin)
            answer.failure(error) if error else answer.success()
        self._write(answer.status_code, meter, error, started, time.perf_counter() - begin)
        return not error

    def _write(self, status: int, meter: StreamMeter, error: Failure, started: float, duration: float) -> None:
        record = RequestRecord(
            started=started,
            region=self.order.region,
            role=self.order.role,
            version=self.order.version,
            status=status or 0,
            ok=not error,
            cut=error == "cut",
            error=error,
            ttft_seconds=meter.first_token,
            itl_mean_seconds=meter.itl_mean,
            duration_seconds=duration,
            output_tokens=meter.output_tokens,
            finish_reason=meter.finish_reason,
            prompt_tokens=meter.prompt_tokens,
        )
        self._records.write(record.model_dump_json().encode() + b"\n")


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


def bring(block: Block) -> None:
    """Return when every request of the block has ended, or its patience has."""
    environment = block.environment()
    runner = environment.create_local_runner()
    runner.start_shape()
    shape = runner.shape_greenlet
    assert shape is not None, "Locust has not begun the shape"
    shape.join()
    runner.quit()


def main() -> None:
    """Follow orders until there are no more."""
    plan = WorkerPlan.model_validate_json(os.environ["TIDEGATE_LOAD_PLAN"])
    die_with(plan.parent)
    lines = lines_of(plan.requests.read_text(encoding="utf-8"))
    requests = [LoadRequest.model_validate_json(line) for line in lines]
    orders = FileObjectThread(sys.stdin.buffer, "rb")
    # Unbuffered and appending: every record is one write, whole or not there.
    with plan.records.open("ab", buffering=0) as records:
        for number in count():
            line = orders.readline()
            if not line:
                return
            block = Block(LoadOrder.model_validate_json(line), requests, plan, records)
            bring(block)
            sys.stdout.write(f'{{"block": {number}, "sent": {block.sent}}}\n')
            sys.stdout.flush()


if __name__ == "__main__":
    main()
