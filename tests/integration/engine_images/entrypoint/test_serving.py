"""What an engine tells its probes, its operators and its metrics while it serves."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from alike import long
from fakes.engines.engine_image import Process1, until_open, write_engine_root
from fakes.services.http import QuietHandler, answering
from fakes.waiting import until

Start = Callable[..., Process1]


def test_it_is_ready_once_every_batch_size_has_answered(tmp_path: Path, start: Start) -> None:
    engine = start(write_engine_root(tmp_path, warm_up=[1, 3])).until_ready()
    assert engine.event("warmed up")["batches"] == [1, 3]
    assert engine.get("/prompts").json() == ["1 0", "3 0", "3 1", "3 2"]


def test_paths_mean_the_same_for_process_1_and_for_vllm(tmp_path: Path, start: Start) -> None:
    write_engine_root(tmp_path, cache={"aot/model": b"compiled"})
    engine = start(tmp_path / "engine", "--root", "engine", run=Path("run"), workdir=tmp_path).until_ready()
    placed = engine.get("/environment").json()
    assert placed["VLLM_CACHE_ROOT"] == str(tmp_path / "run/cache")
    assert (tmp_path / "run/cache/aot/model").read_bytes() == b"compiled"


def test_engines_share_what_vllm_has_found_out_about_model_classes(tmp_path: Path, start: Start) -> None:
    shared, run = tmp_path / "infos", tmp_path / "run"
    start(write_engine_root(tmp_path), "--model-infos", shared, run=run).until_ready()
    (run / "cache" / "modelinfos" / "llama.json").write_text("{}")
    assert (shared / "llama.json").read_text() == "{}"


def test_an_engine_that_brought_them_keeps_its_own(tmp_path: Path, start: Start) -> None:
    shared, run = tmp_path / "infos", tmp_path / "run"
    root = write_engine_root(tmp_path, cache={"modelinfos/llama.json": b"built"})
    start(root, "--model-infos", shared, run=run).until_ready()
    assert (run / "cache" / "modelinfos" / "llama.json").read_bytes() == b"built"
    assert not shared.exists()


def test_a_secret_of_ours_is_not_vllms(tmp_path: Path, start: Start) -> None:
    engine = start(write_engine_root(tmp_path), environment={"TIDEGATE_WEIGHTS_TOKEN": "secret"}).until_ready()
    assert "TIDEGATE_WEIGHTS_TOKEN" not in engine.get("/environment").json()


def test_users_are_refused_while_it_warms_up(tmp_path: Path, start: Start) -> None:
    engine = start(write_engine_root(tmp_path), vllm=["--pace=0.2"])
    while engine.process.poll() is None:
        try:
            asked = httpx.post(f"{engine.url}/v1/completions", json={"prompt": "a", "max_tokens": 1}, trust_env=False)
            break
        except httpx.TransportError:
            time.sleep(0.02)
    assert (asked.status_code, asked.json()["error"]["message"]) == (503, "The engine is warming up; ask again.")
    assert engine.get("/tidegate/health").json() == {"healthy": False, "by": "warming"}


async def test_answers_that_flow_are_proof_enough(tmp_path: Path, start: Start) -> None:
    engine = start(write_engine_root(tmp_path), "--health-every", "1").until_ready()
    async with httpx.AsyncClient(base_url=engine.url, trust_env=False) as client:
        await client.post("/v1/completions", json={"prompt": "a", "max_tokens": 1})
        assert (await client.get("/tidegate/health")).json()["by"] == "traffic"
        assert "health" not in (await client.get("/prompts")).json()


def test_an_engine_that_does_not_generate_is_not_healthy(tmp_path: Path, start: Start) -> None:
    options = ("--health-every", "0", "--health-deadline", "0.5")
    engine = start(write_engine_root(tmp_path), *options, vllm=["--stuck-health"]).until_ready()
    unhealthy = engine.get("/tidegate/health")
    assert unhealthy.status_code == 503
    assert unhealthy.json()["reason"] == "no answer within 0.5 s"


async def test_every_end_of_an_answer_is_counted(tmp_path: Path, start: Start) -> None:
    engine = start(write_engine_root(tmp_path)).until_ready()
    async with httpx.AsyncClient(base_url=engine.url, trust_env=False, follow_redirects=True) as client:
        for prompt in ("a", "wrong", "fail", "a"):
            await client.post("/v1/completions", json={"prompt": prompt, "max_tokens": 2, "stream": True})
        body = {"prompt": "a", "max_tokens": 1000, "stream": True}
        async with client.stream("POST", "/v1/completions", json=body) as left:
            await anext(left.aiter_lines())
        await until_open(client, 0)
        text = (await client.get("/metrics")).text
    counts = [line for line in text.splitlines() if line.startswith(("tidegate_requests_total", "tidegate_open"))]
    assert counts == [
        'tidegate_requests_total{outcome="ok"} 2.0',
        'tidegate_requests_total{outcome="client_error"} 1.0',
        'tidegate_requests_total{outcome="server_error"} 1.0',
        'tidegate_requests_total{outcome="disconnected"} 1.0',
        'tidegate_requests_total{outcome="cut"} 0.0',
        'tidegate_requests_total{outcome="refused"} 0.0',
        "tidegate_open_requests 0.0",
    ]


def start_metrics(engine: Process1) -> dict[str, float]:
    lines = (line.rsplit(" ", 1) for line in engine.get("/metrics/").text.splitlines())
    return {name: float(value) for name, value in lines if name.startswith("tidegate_engine_")}


COMPILED = {"aot/rank_0_0/model": b"compiled", "kernels/a.so": b"ELF", "modelinfos/llama.json": b"{}"}


def test_an_engine_tells_how_long_its_start_took_once_it_is_over(tmp_path: Path, start: Start) -> None:
    before = time.monotonic()
    engine = start(write_engine_root(tmp_path, cache=COMPILED), vllm=["--load-seconds=2", "--pace=0.05"]).until_ready()
    waited = time.monotonic() - before
    told = start_metrics(engine)
    began, loaded, ready = told.values()
    assert list(told) == [
        'tidegate_engine_start_seconds{compile_cache="found"}',
        'tidegate_engine_load_seconds{compile_cache="found"}',
        "tidegate_engine_ready_timestamp_seconds",
    ]
    # Loading is a part of the start. Two batches of eight tokens are warmed up after it, which is seen a little late.
    assert 2 < loaded < began - 8 * 0.05 < began < waited
    assert time.time() - 120 < ready < time.time()
    event = engine.event("ready")
    assert event["compile_cache"] == "found"
    assert {name: event[name] for name in ("start_seconds", "load_seconds")} == {
        "start_seconds": round(began, 2),
        "load_seconds": round(loaded, 2),
    }
    assert engine.get("/tidegate/status").json()["start"]["start_seconds"] == event["start_seconds"]


def test_until_users_may_ask_nothing_is_told_of_the_start(tmp_path: Path, start: Start) -> None:
    engine = start(write_engine_root(tmp_path), vllm=["--pace=1"])
    while engine.process.poll() is None:
        try:
            told = start_metrics(engine)
            break
        except httpx.TransportError:
            time.sleep(0.02)
    assert told == {}
    assert engine.get("/tidegate/status").json()["start"] == {}


@pytest.mark.parametrize(
    ("cache", "vllm", "said"),
    [
        long(COMPILED, ["--compiles=again.so"], "missed"),
        ({}, ["--compiles=first.so"], "missed"),
        long(COMPILED, ["--compiles=notes.txt"], "found"),
        long({}, [], "none"),
        (COMPILED, ["--enforce-eager"], "none"),
    ],
)
def test_it_tells_whether_its_compile_cache_was_found(
    tmp_path: Path, start: Start, cache: dict[str, bytes], vllm: list[str], said: str
) -> None:
    engine = start(write_engine_root(tmp_path, cache=cache), vllm=vllm).until_ready()
    assert {name for name in start_metrics(engine) if said in name} == {
        f'tidegate_engine_{what}_seconds{{compile_cache="{said}"}}' for what in ("start", "load")
    }


def test_no_line_of_the_log_holds_what_users_ask(tmp_path: Path, start: Start) -> None:
    engine = start(write_engine_root(tmp_path)).until_ready()
    httpx.post(f"{engine.url}/v1/completions", json={"prompt": "my secret", "max_tokens": 1}, trust_env=False)
    engine.terminate()
    assert engine.wait() == 0
    assert "my secret" not in engine.output.read_text()
    assert [event["event"] for event in engine.events()][-4:] == ["told to end", "draining", "drained", "ended"]


class Metadata(QuietHandler):
    """The metadata servers of AWS and Google Cloud."""

    taken = False

    def do_PUT(self) -> None:
        self.answer("token")

    def do_GET(self) -> None:
        if (
            self.taken
            and self.path == "/latest/meta-data/spot/instance-action"
            and self.headers["X-aws-ec2-metadata-token"]
        ):
            then = datetime.now(UTC) + timedelta(seconds=120)
            self.answer(json.dumps({"action": "terminate", "time": f"{then:%Y-%m-%dT%H:%M:%SZ}"}))
        elif self.path == "/computeMetadata/v1/instance/preempted" and self.headers["Metadata-Flavor"] == "Google":
            self.answer(str(self.taken).upper())
        else:
            self.answer(status=404)


@pytest.mark.parametrize("cloud", ["aws", long("gcp")])
@pytest.mark.slow(reason="notices are looked for every few seconds")
def test_a_machine_that_the_cloud_takes_is_drained_early(tmp_path: Path, start: Start, cloud: str) -> None:
    metadata = type("ThisMetadata", (Metadata,), {})
    with answering(metadata) as address:
        engine = start(write_engine_root(tmp_path), "--spot", cloud, "--spot-url", f"http://{address}").until_ready()
        metadata.taken = True
        until("it has drained", lambda: engine.get("/tidegate/status").json()["state"] == "drained")
    assert engine.event("draining")["because"] == "spot notice"
    assert engine.process.poll() is None
    engine.terminate()
    assert engine.wait() == 0
