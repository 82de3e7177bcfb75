"""One real start of vLLM, asked everything that needs one."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fakes.engines.exposition import agree, exported

from engine_images.accelerators import Accelerator
from engine_images.adapters.environment import find_engine_environment
from engine_images.adapters.model_version import FileTokenizer
from engine_images.arguments.serving import serving
from engine_images.build.builder import build_request
from engine_images.build.engine_root import PORT, READY_PATH, serve, write_root
from engine_images.choices import CompileMode
from engine_images.manifest import EngineManifest, ModelContract
from engine_images.memory import DEFAULT_KV_CACHE_BYTES, MEBIBYTE, block_tokens, bytes_per_token
from engine_images.model import LaunchCommand
from engine_images.shape import shape_of
from engine_images.spec import CompileSpec, EngineSettings, VllmSpec
from registry.model_files import digest_files, whole_digest
from slo.metrics import INVENTORY
from slo.metrics.vllm import VLLM
from tidegate.testing import write_tiny_model

pytestmark = pytest.mark.engine

START_DEADLINE_SECONDS = 120

CONVERSATIONS = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [
        {"role": "system", "content": "Sei höflich. <b>&'\""},
        {"role": "user", "content": "Grüße 你好 🎉\n\n  two  spaces\t"},
        {"role": "assistant", "content": "ok <|im_end|> x"},
        {"role": "user", "content": " "},
    ],
]


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> LaunchCommand:
    folder = tmp_path_factory.mktemp("engine")
    model = write_tiny_model(folder)
    environment = find_engine_environment()
    settings = EngineSettings(
        vllm=VllmSpec(version=environment.vllm, args={"max-model-len": 1024, "dtype": "float32"}),
        compile=CompileSpec(mode=CompileMode.NONE),
    )
    files = digest_files(model)
    contract = ModelContract(name="tiny", version="1", digest=whole_digest(files), files=files)
    order = build_request(contract, model, settings, environment, name="tiny")
    root = folder / "root"
    write_root(root, EngineManifest(engine="tiny", model=contract, launch=order.launch), model, None)
    return serve(order, root, folder / "run", threads=1)


@pytest.fixture(scope="module")
def engine(launch: LaunchCommand) -> Iterator[httpx.Client]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = Path(launch.workdir, "log")
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
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=90, trust_env=False) as client:
            _wait_until_healthy(client, process, log)
            yield client
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_until_healthy(client: httpx.Client, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_DEADLINE_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if client.get(READY_PATH).status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            time.sleep(0.2)
    pytest.fail(f"the engine did not start: {log.read_text()[-2000:]}")


def _ask(client: httpx.Client, **options: object) -> httpx.Response:
    body = {"model": "tiny", "messages": CONVERSATIONS[0], "temperature": 0, "max_tokens": 16, **options}
    return client.post("/v1/chat/completions", json=body)


@pytest.mark.parametrize("messages", CONVERSATIONS)
def test_the_registered_files_give_the_tokens_that_the_engine_gives(
    engine: httpx.Client, launch: LaunchCommand, messages: list[dict[str, str]]
) -> None:
    served = engine.post("/tokenize", json={"model": "tiny", "messages": messages}).json()["tokens"]
    assert FileTokenizer().encode(Path(launch.workdir, "model"), messages) == served


def test_the_same_prompt_gives_the_same_tokens_twice(engine: httpx.Client) -> None:
    answers = [_ask(engine, return_token_ids=True).json()["choices"][0]["token_ids"] for _ in range(2)]
    assert answers[0] == answers[1]
    assert len(answers[0]) == 16


def test_the_engine_answers_to_its_name_only(engine: httpx.Client) -> None:
    assert _ask(engine, model="model").status_code == httpx.codes.NOT_FOUND


def test_the_chat_template_can_be_read_from_the_engine(engine: httpx.Client, launch: LaunchCommand) -> None:
    template = Path(launch.workdir, "model", "chat_template.jinja").read_text(encoding="utf-8")
    assert engine.get("/tokenizer_info").json()["chat_template"] == template


def test_the_estimate_of_memory_is_near_what_the_engine_takes(engine: httpx.Client, launch: LaunchCommand) -> None:
    _ask(engine)
    taken = _memory_below(Path(launch.workdir))
    assert taken < launch.memory_bytes < taken + 600 * MEBIBYTE


def test_the_inventory_of_metrics_is_what_it_exports(engine: httpx.Client) -> None:
    _ask(engine)
    found = exported(engine.get("/metrics").text)
    assert [metric.name for metric in VLLM if not metric.only_with and metric.name not in found] == []
    assert [name for name in found if name.startswith("vllm:") and not agree(found[name], INVENTORY[name])] == []


def test_the_kv_cache_has_as_many_blocks_as_were_counted_before(engine: httpx.Client, launch: LaunchCommand) -> None:
    metrics = engine.get("/metrics").text
    info = next(line for line in metrics.splitlines() if line.startswith("vllm:cache_config_info"))
    shape = shape_of(json.loads(Path(launch.workdir, "model", "config.json").read_text(encoding="utf-8")))
    asked = serving({"max-model-len": 1024, "dtype": "float32"})
    block = block_tokens(asked, Accelerator.CPU)
    blocks = DEFAULT_KV_CACHE_BYTES // int(block * bytes_per_token(asked, shape) * shape.layers)
    assert f'kv_cache_size_tokens="{blocks * block}"' in info
    assert f'num_gpu_blocks="{blocks}"' in info


def _memory_below(workdir: Path) -> int:
    """Bytes of the processes that run below `workdir`'s folder, shared pages counted in parts."""
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink().is_relative_to(workdir.parent):
                lines = (process / "smaps_rollup").read_text(encoding="ascii").splitlines()
                total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
        except OSError:
            continue
    return total
