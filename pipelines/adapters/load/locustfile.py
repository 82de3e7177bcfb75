"""The users: a Locust load that streams chat completions and writes a record per request.

Runs in a process of its own (`process.py` starts it), because Locust replaces the standard library's
sockets with gevent's. Its plan comes in the environment, as JSON.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gevent.pool
import requests
from locust import HttpUser, task
from urllib3 import PoolManager

from gates.evidence.request_record import Failure, RequestRecord
from gates.text import declines
from pipelines.adapters.load.death import die_with
from pipelines.adapters.load.prompts import describe_prompts, load_topics, read_prompts, topics_file
from pipelines.adapters.load.stream import HEADERS, PATH, StreamMeter, streamed_chat
from pipelines.load.model import LoadPlan
from tidegate.core.names import REGENERATES_HEADER, ROLE_HEADER, VERSION_HEADER

PLAN = LoadPlan.model_validate_json(os.environ["TIDEGATE_LOAD_PLAN"])
ENTRIES = iter(PLAN.entries.items())
CONNECT_SECONDS = 5
"""For a connection to the region's door, which is on this machine."""
LOGPROBS_PER_SECOND = float(os.environ.get("TIDEGATE_LOAD_LOGPROBS_PER_SECOND", "0"))
"""Requests of each region that ask for log probabilities. None by default: each chunk is some three times as long with
them, and vLLM compiles a kernel at the first such request, which would be a pause on a fresh canary only."""
TOP_LOGPROBS = 5


class RegionUsers(HttpUser):
    """All users of one region, the next of the plan. Each arrival is a greenlet: a slow answer delays no other one."""

    def __init__(self, environment: Any) -> None:
        self.region, self.host = next(ENTRIES)
        # The default pool keeps 10 connections and drops the others after use; a region has more users at once.
        self.pool_manager = PoolManager(maxsize=256)
        super().__init__(environment)  # type: ignore[no-untyped-call]  # Locust has no types here
        self.random = random.Random(f"{PLAN.seed} {self.region}")
        # Dice of its own: who asks for log probabilities changes neither arrivals nor prompts.
        self.logprobs_random = random.Random(f"logprobs {PLAN.seed} {self.region}")
        self.unwanted_random = random.Random(f"unwanted {PLAN.seed} {self.region}")
        self.in_flight = gevent.pool.Group()

    def wait_time(self) -> float:
        """Seconds to the next arrival of a Poisson process."""
        return self.random.expovariate(PLAN.rate)

    @task
    def arrive(self) -> None:
        """One more user asks."""
        self.in_flight.spawn(self._ask, self.random.choice(PROMPTS))

    def on_stop(self) -> None:
        """Let the answers that are under way arrive; Locust's stop timeout bounds the wait."""
        self.in_flight.join()

    def _ask(self, prompt: str) -> None:
        version = self._request(prompt)
        if version and self.unwanted_random.random() < PLAN.regenerate:
            self._request(prompt, {REGENERATES_HEADER: version})

    def _request(self, prompt: str, headers: Mapping[str, str] = MappingProxyType({})) -> str:
        """Ask once; the version that answered in full, empty when none did."""
        started, begin = time.time(), time.perf_counter()
        meter = StreamMeter()
        body = streamed_chat(PLAN.model, prompt, max_tokens=PLAN.max_tokens)
        if self.logprobs_random.random() * PLAN.rate < LOGPROBS_PER_SECOND:
            body |= {"logprobs": True, "top_logprobs": TOP_LOGPROBS}
        with self.client.post(
            PATH,
            json=body,
            headers={**HEADERS, **headers},
            name=self.region,
            stream=True,
            catch_response=True,
            timeout=(CONNECT_SECONDS, PLAN.timeout_seconds),
        ) as answer:
            error = _follow(answer, meter, begin)
            if error:
                answer.failure(error)
            else:
                answer.success()
            record = self._record(answer, meter, error, started, time.perf_counter() - begin, prompt=prompt)
            _write(record)
            return record.version if record.ok else ""

    def _record(
        self, answer: Any, meter: StreamMeter, error: Failure, started: float, duration: float, /, *, prompt: str
    ) -> RequestRecord:
        answered, asked = bool(answer.status_code), DESCRIBED[prompt]
        return RequestRecord(
            started=started,
            region=self.region,
            role=answer.headers.get(ROLE_HEADER, "") if answered else "",
            version=answer.headers.get(VERSION_HEADER, "") if answered else "",
            status=answer.status_code or 0,
            ok=not error,
            cut=error == "cut",
            error=error,
            ttft_seconds=meter.first_token,
            itl_mean_seconds=meter.itl_mean,
            duration_seconds=duration,
            output_tokens=meter.output_tokens,
            finish_reason=meter.finish_reason,
            refusal=None if error else declines(meter.opening),
            entropy=meter.entropy,
            prompt_characters=asked.characters,
            prompt_tokens=meter.prompt_tokens,
            prompt_language=asked.language,
            prompt_topic=asked.topic,
        )


def _follow(answer: Any, meter: StreamMeter, begin: float) -> Failure:
    """Read the answer to its end; the class of failure, empty when all is well."""
    if not answer.status_code:
        return "timeout" if isinstance(answer.error, requests.Timeout) else "connect"
    if answer.status_code // 100 != 2:
        return "status"
    try:
        # chunk_size None hands on every chunk as it comes instead of waiting for a full buffer.
        for line in answer.iter_lines(chunk_size=None):
            meter.feed(line, time.perf_counter() - begin)
    except requests.RequestException:
        return "cut"
    return meter.failure


def _write(record: RequestRecord) -> None:
    RECORDS.write(record.model_dump_json().encode() + b"\n")


die_with(PLAN.parent)
PROMPTS = read_prompts(Path(PLAN.prompts))
DESCRIBED = describe_prompts(PROMPTS, load_topics(topics_file(Path(PLAN.records))))
# Unbuffered and appending: every record is one write, whole or not there.
RECORDS = Path(PLAN.records).open("ab", buffering=0)  # noqa: SIM115
