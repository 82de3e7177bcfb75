"""What every engine promises, as far as deliveries, their users and their gates rely on it: vLLM, and `served_model`.

Inherit the class and bring one fixture: `engine`, as `running_engine` makes it of the engine environment that is found.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fakes.engines.exposition import agree, exported
from fakes.waiting import PATIENCE_SECONDS, until

from engine_images.adapters.environment import find_engine_environment
from engine_images.adapters.model_version import FileTokenizer, read_version
from engine_images.build.engine_root import PORT, READY_PATH, serve, write_root
from engine_images.build.model import build_request
from engine_images.checks.servable import process_bytes
from engine_images.choices import CompileMode
from engine_images.manifest import EngineManifest, ModelContract
from engine_images.model import LaunchCommand
from engine_images.samples.key import REDACTED, WHERE, SampleKey
from engine_images.spec import CompileSpec, EngineSettings, VllmSpec
from pipelines.adapters.chat import OpenAIChat
from registry.files import digest_files, whole_digest
from rollouts.adapters.sockets import free_port
from slo import metrics as vllm
from slo.metrics import INVENTORY
from tidegate.testing import write_tiny_model

NAME = "tiny"
QUESTION = "What is the capital of France?"
CONVERSATIONS = [
    [{"role": "user", "content": QUESTION}],
    [
        {"role": "system", "content": "Sei höflich. <b>&'\""},
        {"role": "user", "content": "Grüße 你好 🎉\n\n  two  spaces\t"},
        {"role": "assistant", "content": "ok <|im_end|> x"},
        {"role": "user", "content": " "},
    ],
]
TOLD = vllm.TTFT.model_copy(update={"edges": tuple(sorted({*vllm.TTFT.edges, 0.2}))})
"""As an SLO of 200 ms has it counted."""
READ_BY_GATES = (
    *(vllm.TTFT, vllm.ITL, vllm.TIME_PER_OUTPUT_TOKEN, vllm.E2E, vllm.QUEUE_TIME, vllm.RUNNING, vllm.WAITING),
    *(vllm.KV_CACHE_USAGE, vllm.FINISHED, vllm.PROMPT_TOKENS, vllm.GENERATION_TOKENS, vllm.HTTP_REQUESTS),
)


@dataclass(frozen=True)
class RunningEngine:
    """An engine that answers, and where its files are."""

    client: httpx.Client
    launch: LaunchCommand
    samples: Path
    """What it keeps of requests is said in this file, which is not there."""

    @property
    def model(self) -> Path:
        return Path(self.launch.workdir, "model")

    def chat(self, **options: object) -> httpx.Response:
        body = {"model": NAME, "messages": CONVERSATIONS[0], "temperature": 0, "max_tokens": 16, **options}
        return self.client.post("/v1/chat/completions", json=body)

    def metrics(self) -> str:
        return self.client.get("/metrics").text

    def count(self, name: str) -> float:
        """The sum of its series."""
        lines = [line for line in self.metrics().splitlines() if line.partition("{")[0] == name]
        return sum(float(line.rpartition(" ")[2]) for line in lines)


@contextmanager
def running_engine(folder: Path) -> Iterator[RunningEngine]:
    """A tiny model, once it is ready, started as a fleet of this machine starts it; below `folder`."""
    launch = _launch(folder)
    port, log = free_port(), Path(launch.workdir, "log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [part.replace(PORT, str(port)) for part in launch.command],
            env=os.environ | launch.environment,
            cwd=launch.workdir,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_SECONDS, trust_env=False) as client:
            until("the engine is ready", lambda: _is_ready(client, process, log))
            yield RunningEngine(client, launch, folder / "samples.json")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _launch(folder: Path) -> LaunchCommand:
    model = write_tiny_model(folder)
    environment = find_engine_environment()
    settings = EngineSettings(
        vllm=VllmSpec(
            version=environment.vllm,
            args={"max-model-len": 1024, "dtype": "float32", vllm.BUCKETS: {vllm.TTFT.family: list(TOLD.edges)}},
        ),
        compile=CompileSpec(mode=CompileMode.NONE),
    )
    files = digest_files(model)
    contract = ModelContract(name=NAME, version="1", digest=whole_digest(files), files=files)
    order = build_request(
        contract, model, settings, environment, name=NAME, memory_bytes=process_bytes(read_version(model), settings)
    )
    root = folder / "root"
    write_root(root, EngineManifest(engine=NAME, model=contract, launch=order.launch), model, None)
    return serve(order, root, folder / "run", threads=1, samples=folder / "samples.json")


def _is_ready(client: httpx.Client, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, f"the engine did not start: {log.read_text()[-2000:]}"
    with suppress(httpx.TransportError):
        return client.get(READY_PATH).is_success
    return False


class EngineContract:
    """What is asked of an engine, and what it answers."""

    @pytest.mark.parametrize("messages", CONVERSATIONS)
    def test_the_registered_files_give_the_tokens_that_the_engine_gives(
        self, engine: RunningEngine, messages: list[dict[str, str]]
    ) -> None:
        served = engine.client.post("/tokenize", json={"model": NAME, "messages": messages}).json()["tokens"]
        assert FileTokenizer().encode(engine.model, messages) == served

    def test_the_same_prompt_gives_the_same_tokens_twice(self, engine: RunningEngine) -> None:
        answers = [engine.chat(return_token_ids=True).json()["choices"][0]["token_ids"] for _ in range(2)]
        assert answers[0] == answers[1]
        assert len(answers[0]) == 16

    def test_the_engine_answers_to_its_name_only(self, engine: RunningEngine) -> None:
        assert engine.chat(model="model").status_code == httpx.codes.NOT_FOUND

    async def test_a_stream_says_what_the_whole_answer_says(self, engine: RunningEngine) -> None:
        whole = engine.chat(seed=0, return_token_ids=True).json()["choices"][0]
        streamed = await OpenAIChat().ask(str(engine.client.base_url).rstrip("/"), NAME, QUESTION, max_tokens=16)
        assert (streamed.text, list(streamed.tokens)) == (whole["message"]["content"], whole["token_ids"])
        assert (streamed.finish_reason, whole["finish_reason"]) == ("length", "length")

    def test_what_it_counts_is_of_the_inventory_and_what_gates_read_is_there(self, engine: RunningEngine) -> None:
        counts = {
            f"{vllm.TTFT.name}_count": 1,
            f"{vllm.E2E.name}_count": 1,
            vllm.GENERATION_TOKENS.name: 16,
            vllm.FINISHED.name: 1,
            vllm.HTTP_REQUESTS.name: 1,
        }
        before = {name: engine.count(name) for name in counts}
        assert engine.chat(stream=True).is_success
        # vLLM counts a request once its answer is out.
        until("all is counted", lambda: {name: engine.count(name) - before[name] for name in counts} == counts)
        found = exported(engine.metrics())
        assert [metric.name for metric in READ_BY_GATES if metric.name not in found] == []
        inventory = INVENTORY | {TOLD.name: TOLD}
        assert [name for name in found.keys() & inventory.keys() if not agree(found[name], inventory[name])] == []

    def test_samples_are_what_users_got_whichever_way_they_asked(self, engine: RunningEngine) -> None:
        key, headers = SampleKey(), {"x-request-id": "as a proxy names it"}
        limits = {"redact": REDACTED, "words": (), "max_entries": 10, "max_bytes": 1 << 20, "keep_seconds": 60.0}
        engine.samples.write_text(key.request({"1": 1.0}, until=time.time() + 300, **limits))  # type: ignore[arg-type]
        try:
            _until_samples(engine, on=True)
            chat, prompt = {"messages": CONVERSATIONS[0]}, {"prompt": QUESTION}
            asked = {"model": NAME, "temperature": 0, "max_tokens": 8}
            for path, form in {"/v1/chat/completions": chat, "/v1/completions": prompt}.items():
                for stream in (False, True):
                    answer = engine.client.post(path, json={**asked, **form, "stream": stream}, headers=headers)
                    assert answer.is_success
            _until_samples(engine, held=4)
            given = engine.client.post(WHERE, headers={"authorization": f"Bearer {key.token}"}).json()
        finally:
            engine.samples.unlink()
        found = [json.loads(key.open(base64.b64decode(sealed))) for sealed in given["samples"]]
        assert [(each["prompt"], each["whole"], each["finish_reason"]) for each in found] == [
            (QUESTION, True, "length")
        ] * 4
        whole = engine.chat(max_tokens=8).json()["choices"][0]["message"]["content"]
        answers = [each["answer"] for each in found]
        assert answers[:2] == [whole, whole]
        assert answers[2] == answers[3] != ""
        _until_samples(engine, on=False)


def _until_samples(engine: RunningEngine, **wanted: Any) -> None:
    until(
        f"samples: {wanted}", lambda: wanted.items() <= engine.client.get("/tidegate/status").json()["samples"].items()
    )
