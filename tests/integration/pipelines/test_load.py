"""The real Locust load against a slow streaming server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import psutil
import pytest
from fakes.services.chat_servers import WORDS, chat_server

from gates.adapters.text_models import WordEmbeddings
from gates.evidence.request_record import RecordReader, RequestRecord
from pipelines.adapters.load.process import LoadProcess, start_load
from pipelines.adapters.load.prompts import fit_topics, topics_file
from tidegate.core.errors import OutsideError, UsageError


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.txt"
    path.write_text('What is 2 + 2?\n{"prompt": "and 3 + 3?"}\n')
    return path


def start(
    tmp_path: Path,
    prompts: Path,
    entries: dict[str, str],
    *,
    model: str = "m",
    rate: float = 10,
    regenerate: float = 0,
) -> LoadProcess:
    records = tmp_path / "traffic" / "users.jsonl"
    return start_load(
        entries, rate=rate, prompts=prompts, model=model, max_tokens=4, records=records, regenerate=regenerate
    )


async def wait_for_records(load: LoadProcess, count: int) -> None:
    deadline = time.monotonic() + 120
    while load.totals().requests < count:
        load.check()
        assert time.monotonic() < deadline, "the load wrote no records"
        await asyncio.sleep(0.1)


async def records_of(tmp_path: Path, prompts: Path, model: str, count: int = 5) -> list[RequestRecord]:
    with chat_server() as server:
        load = start(tmp_path, prompts, {"eu-west-1": server.url}, model=model)
        await wait_for_records(load, count)
        await load.stop()
    return RecordReader(load.records).read_new()


async def test_streams_are_measured_while_they_arrive(tmp_path: Path, prompts: Path) -> None:
    records = await records_of(tmp_path, prompts, "m")
    assert all(record.ok and record.status == 200 and not record.cut for record in records)
    assert {(record.role, record.version, record.region) for record in records} == {("canary", "7", "eu-west-1")}
    for record in records:
        assert record.ttft_seconds is not None and record.itl_mean_seconds is not None
        assert 0.04 < record.ttft_seconds < record.duration_seconds
        assert record.output_tokens == len(WORDS)
        assert record.finish_reason == "stop"
    # Of all of them: a busy machine reads now and then several tokens at once.
    assert median(record.itl_mean_seconds or 0.0 for record in records) == pytest.approx(0.05, abs=0.03)


async def test_users_ask_again_now_and_then_and_say_whose_answer_they_did_not_want(
    tmp_path: Path, prompts: Path
) -> None:
    with chat_server() as server:
        load = start(tmp_path, prompts, {"eu-west-1": server.url}, rate=40, regenerate=0.5)
        await wait_for_records(load, 120)
        await load.stop()
    again = [number for number, version in enumerate(server.regenerates) if version == "7"]
    first = [number for number, version in enumerate(server.regenerates) if version is None]
    assert len(again) + len(first) == len(server.bodies)
    # Half of all first answers, within five standard deviations.
    assert len(again) / len(first) == pytest.approx(0.5, abs=5 * (0.25 / len(first)) ** 0.5)
    assert len(RecordReader(load.records).read_new()) == len(server.bodies)


async def test_nobody_asks_again_because_there_was_no_answer(tmp_path: Path, prompts: Path) -> None:
    with chat_server() as server:
        load = start(tmp_path, prompts, {"eu-west-1": server.url}, model="fail", regenerate=0.99)
        await wait_for_records(load, 5)
        await load.stop()
    assert set(server.regenerates) == {None}


async def test_what_drift_looks_at_is_written_next_to_the_times_and_no_words_are(tmp_path: Path, prompts: Path) -> None:
    prompts.write_text("Wie viele Tage hat ein Jahr, und warum sind es manchmal mehr?\n")
    records = await records_of(tmp_path, prompts, "m")
    assert {(r.prompt_characters, r.prompt_language, r.prompt_topic, r.prompt_tokens) for r in records} == {
        (61, "de", None, 3)
    }
    assert {(r.refusal, r.entropy) for r in records} == {(False, None)}
    written = (tmp_path / "traffic" / "users.jsonl").read_text()
    assert "Jahr" not in written and "answer" not in written


async def test_topics_are_told_when_a_model_of_them_lies_next_to_the_records(tmp_path: Path, prompts: Path) -> None:
    about = ["How do I cook rice with {n} onions?", "Which train goes to Berlin at {n} o'clock?"]
    asked = [text.format(n=number) for text in about for number in range(30)]
    model = fit_topics(WordEmbeddings(), asked, topics=2)
    assert model is not None
    (tmp_path / "traffic").mkdir()
    model.save(topics_file(tmp_path / "traffic" / "users.jsonl"))
    prompts.write_text(asked[0] + "\n")
    assert {r.prompt_topic for r in await records_of(tmp_path, prompts, "m")} == set(
        model.topics(WordEmbeddings(), asked[:1])
    )


async def test_log_probabilities_are_asked_for_as_often_as_is_said(
    tmp_path: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_LOAD_LOGPROBS_PER_SECOND", "10")
    with chat_server(token_seconds=0.001) as server:
        load = start(tmp_path, prompts, {"eu-west-1": server.url}, rate=20)
        await wait_for_records(load, 40)
        await load.stop()
        asked = [body.get("top_logprobs") for body in server.bodies]
    assert 0.2 < asked.count(5) / len(asked) < 0.8


@pytest.mark.parametrize(
    ("model", "error", "status", "cut"),
    [("cut", "cut", 200, True), ("fail", "status", 500, False), ("refuse", "status", 400, False)],
)
async def test_every_failed_or_cut_request_is_counted(
    tmp_path: Path, prompts: Path, *, model: str, error: str, status: int, cut: bool
) -> None:
    records = await records_of(tmp_path, prompts, model)
    assert {(record.ok, record.error, record.status, record.cut) for record in records} == {(False, error, status, cut)}


async def test_a_region_that_is_not_there_counts_as_failed_and_names_no_version(tmp_path: Path, prompts: Path) -> None:
    load = start(tmp_path, prompts, {"eu-west-1": "http://127.0.0.1:9"})
    await wait_for_records(load, 2)
    totals = await load.stop()
    assert totals.failed == totals.requests
    assert {(r.error, r.version, r.status) for r in RecordReader(load.records).read_new()} == {("connect", "", 0)}


async def test_requests_under_way_at_the_stop_end_well_and_are_counted(tmp_path: Path, prompts: Path) -> None:
    with chat_server(token_seconds=0.4) as server:
        load = start(tmp_path, prompts, {"eu-west-1": server.url}, rate=20)
        await wait_for_records(load, 1)
        totals = await load.stop()
        assert totals.requests == len(server.bodies)
        assert (totals.failed, totals.cut) == (0, 0)
        assert await load.stop() == totals


async def test_every_region_has_users_at_the_stated_rate(tmp_path: Path, prompts: Path) -> None:
    with chat_server(token_seconds=0.001) as server:
        load = start(tmp_path, prompts, {"eu-west-1": server.url, "us-east-1": server.url}, rate=20)
        await wait_for_records(load, 120)
        await load.stop()
    records = RecordReader(load.records).read_new()
    for region in ("eu-west-1", "us-east-1"):
        starts = [record.started for record in records if record.region == region]
        assert 12 < (len(starts) - 1) / (max(starts) - min(starts)) < 30


async def test_the_load_dies_with_the_process_that_started_it(tmp_path: Path, prompts: Path) -> None:
    program = f"""
import time
from pathlib import Path
from statistics import median
from gates.adapters.text_models import WordEmbeddings
from pipelines.adapters.load.process import start_load
load = start_load({{"eu": "http://127.0.0.1:9"}}, rate=5, prompts=Path({str(prompts)!r}), model="m",
                  max_tokens=4, records=Path({str(tmp_path / "users.jsonl")!r}))
print(load.pids[0], flush=True)
time.sleep(60)
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=dict(os.environ))
    assert parent.stdout is not None
    load = psutil.Process(int(parent.stdout.readline()))
    deadline = time.monotonic() + 120
    while not (tmp_path / "users.jsonl").stat().st_size and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    load.wait(timeout=60)


async def test_a_load_that_ended_by_itself_says_so(tmp_path: Path, prompts: Path) -> None:
    load = start(tmp_path, prompts, {"eu-west-1": "no address"})
    (pid,) = load.pids
    os.kill(pid, 9)
    psutil.Process(pid).wait(timeout=60)
    with pytest.raises(OutsideError, match="the load ended with code"):
        load.check()
        await asyncio.sleep(0.1)
        load.check()


def test_a_load_without_prompts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(UsageError, match="has no prompts"):
        start(tmp_path, tmp_path / "empty.txt", {"eu": "http://127.0.0.1:9"})
    with pytest.raises(UsageError, match="cannot read the prompts"):
        start(tmp_path, tmp_path / "missing.txt", {"eu": "http://127.0.0.1:9"})
