"""The real Locust load against a slow streaming server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import psutil
import pytest
from fakes.services.chat_servers import WORDS, chat_server
from fakes.waiting import PATIENCE_SECONDS

from gates.evidence.request_record import RecordReader, RequestRecord
from pipelines.adapters.load.process import LoadProcess, start_load
from tidegate.core.errors import OutsideError

pytestmark = pytest.mark.slow(reason="Locust's processes")


PROMPTS = ("What is 2 + 2?", "and 3 + 3?")


def start(
    tmp_path: Path,
    entries: dict[str, str],
    *,
    prompts: Sequence[str] = PROMPTS,
    rate: float = 10,
) -> LoadProcess:
    records = tmp_path / "traffic" / "users.jsonl"
    return start_load(entries, rate=rate, prompts=prompts, model="m", max_tokens=4, records=records)


async def wait_for_records(load: LoadProcess, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while load.totals().requests < count:
        load.check()
        assert time.monotonic() < deadline, "the load wrote no records"
        await asyncio.sleep(0.1)


FAILURES = {
    "cut": ("cut", 200, True, "7"),
    "fail": ("status", 500, False, "7"),
    "refuse": ("status", 400, False, "7"),
    "gone": ("connect", 0, False, ""),
}
"""Of each region that does not work: its requests' error, their status, whether they are cut, and who answered."""
QUESTION = "Wie viele Tage hat ein Jahr, und warum sind es manchmal mehr?"


async def test_what_became_of_each_request_is_measured_region_by_region(tmp_path: Path) -> None:
    with ExitStack() as stack:
        kinds = {"well": "", **{kind: kind for kind in FAILURES if kind != "gone"}}
        servers = {region: stack.enter_context(chat_server(as_if=kind)) for region, kind in kinds.items()}
        entries = {region: server.url for region, server in servers.items()} | {"gone": "http://127.0.0.1:9"}
        load = start(tmp_path, entries, prompts=[QUESTION], rate=20)
        while len(servers["well"].bodies) < 120:
            load.check()
            await asyncio.sleep(0.1)
        totals = await load.stop()
    records = RecordReader(load.records).read_new()
    assert totals.requests == len(records)
    of = {region: [record for record in records if record.region == region] for region in entries}
    well(of["well"])
    assert len(of["well"]) == len(servers["well"].bodies)
    # A region that refuses at once shows how often users ask.
    starts = [record.started for record in of["refuse"]]
    assert 12 < (len(starts) - 1) / (max(starts) - min(starts)) < 30
    for region, expected in FAILURES.items():
        assert {(not r.ok, r.error, r.status, r.cut, r.version) for r in of[region]} == {(True, *expected)}
    assert totals.failed == sum(not record.ok for record in records) == sum(len(of[region]) for region in FAILURES)
    written = load.records.read_text()
    assert "Jahr" not in written and "answer" not in written


def well(records: list[RequestRecord]) -> None:
    """Streams are measured while they arrive."""
    assert all(record.ok and record.status == 200 and not record.cut for record in records)
    assert {(record.role, record.version) for record in records} == {("canary", "7")}
    for record in records:
        assert record.ttft_seconds is not None and record.itl_mean_seconds is not None
        assert 0.04 < record.ttft_seconds < record.duration_seconds
        assert record.output_tokens == len(WORDS)
    # Of all of them: a busy machine reads now and then several tokens at once.
    assert median(record.itl_mean_seconds or 0.0 for record in records) == pytest.approx(0.05, abs=0.03)


async def test_requests_under_way_at_the_stop_end_well_and_are_counted(tmp_path: Path) -> None:
    with chat_server(token_seconds=0.4) as server:
        load = start(tmp_path, {"eu-west-1": server.url}, rate=20)
        await wait_for_records(load, 1)
        totals = await load.stop()
        assert totals.requests == len(server.bodies)
        assert (totals.failed, totals.cut) == (0, 0)
        assert await load.stop() == totals


async def test_the_load_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    program = f"""
import time
from pathlib import Path
from pipelines.adapters.load.process import start_load
load = start_load({{"eu": "http://127.0.0.1:9"}}, rate=5, prompts=["What?"], model="m",
                  max_tokens=4, records=Path({str(tmp_path / "users.jsonl")!r}))
print(load.pids[0], flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=dict(os.environ))
    assert parent.stdout is not None
    load = psutil.Process(int(parent.stdout.readline()))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (tmp_path / "users.jsonl").stat().st_size and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    load.wait(timeout=PATIENCE_SECONDS)


async def test_a_load_that_ended_by_itself_says_so(tmp_path: Path) -> None:
    load = start(tmp_path, {"eu-west-1": "no address"})
    (pid,) = load.pids
    os.kill(pid, 9)
    psutil.Process(pid).wait(timeout=PATIENCE_SECONDS)
    with pytest.raises(OutsideError, match="the load ended with code"):
        load.check()
        await asyncio.sleep(0.1)
        load.check()
