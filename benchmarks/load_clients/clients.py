"""How each client is started on the same task, and where its own figures are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

GUIDELLM = "0.8.1"
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Task:
    """The same for every client: Poisson arrivals, and answers of that many tokens."""

    url: str
    model: str
    rate: float
    """Requests a second."""
    seconds: float
    tokens: int


@dataclass(frozen=True)
class Place:
    """What lies where."""

    folder: Path
    """For results."""
    prompts: Path
    tokenizer: Path
    """A Hugging Face folder; clients that write their own prompts count tokens with it."""


@dataclass(frozen=True)
class Measured:
    """What a client says; seconds. Of the time between tokens it is the mean of each request, as all three have it."""

    requests: int
    failed: int
    ttft_mean: float
    ttft: Mapping[str, float]
    itl: Mapping[str, float]


class Client(Protocol):
    """One that brings load."""

    name: str

    def command(self, task: Task, place: Place) -> list[str]:
        """Its command line, for a fresh process."""
        ...

    def environment(self) -> Mapping[str, str]:
        """Added to ours."""
        ...

    def measured(self, place: Place) -> Measured:
        """What it says afterwards."""
        ...


class Ours:
    """The load of the stage `load`, by as many Locust processes as the stage would start."""

    name = "tidegate"

    def command(self, task: Task, place: Place) -> list[str]:
        told = (task.url, task.model, task.rate, task.seconds, task.tokens)
        return [
            sys.executable,
            "-m",
            "benchmarks.load_clients.ours",
            *map(str, (*told, place.folder, place.prompts, place.tokenizer)),
        ]

    def environment(self) -> Mapping[str, str]:
        return {"PYTHONPATH": str(HERE.parents[1])}

    def measured(self, place: Place) -> Measured:
        return Measured(**json.loads((place.folder / "ours.json").read_text()))


class VllmBench:
    """vLLM's client: one process with one loop."""

    name = "vllm bench serve"

    def __init__(self, python: str) -> None:
        """Of the engine environment."""
        self._python = python

    def command(self, task: Task, place: Place) -> list[str]:
        options = {
            "--backend": "openai-chat",
            "--base-url": task.url,
            "--endpoint": "/v1/chat/completions",
            "--model": task.model,
            "--dataset-name": "random",
            "--tokenizer": place.tokenizer,
            "--random-input-len": 16,
            "--random-output-len": task.tokens,
            "--num-prompts": round(task.rate * task.seconds),
            "--request-rate": task.rate,
            "--ready-check-timeout-sec": 0,
            "--percentile-metrics": "ttft,tpot",
            "--metric-percentiles": "50,95,99",
            "--result-dir": place.folder,
            "--result-filename": "vllm.json",
        }
        flags = [str(part) for option in options.items() for part in option]
        return [self._python, str(HERE / "vllm_client.py"), *flags, "--save-result", "--disable-tqdm"]

    def environment(self) -> Mapping[str, str]:
        return {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}

    def measured(self, place: Place) -> Measured:
        found = json.loads((place.folder / "vllm.json").read_text())
        return Measured(
            requests=found["completed"],
            failed=found["failed"],
            ttft_mean=found["mean_ttft_ms"] / 1000,
            ttft={name: found[f"{name}_ttft_ms"] / 1000 for name in ("p50", "p95", "p99")},
            itl={name: found[f"{name}_tpot_ms"] / 1000 for name in ("p50", "p95", "p99")},
        )


class GuideLlm:
    """GuideLLM with one worker process: ten, its default, would only wait for each other on one core."""

    name = f"guidellm {GUIDELLM}"

    def __init__(self, environment: Path) -> None:
        """Where `installed` has put it."""
        self._bin = environment / "bin"

    def command(self, task: Task, place: Place) -> list[str]:
        return [
            *(str(self._bin / "guidellm"), "run", "--disable-console"),
            *("--backend", f"kind=openai_http,target={task.url},model={task.model}"),
            *("--profile", f"kind=poisson,rate={task.rate}"),
            *("--constraint", f"kind=max_duration,seconds={task.seconds}"),
            *("--tokenizer", f"kind=huggingface_auto,model={place.tokenizer}"),
            *("--data", f"kind=synthetic_text,prompt_tokens=16,output_tokens={task.tokens}"),
            *("--output", f"kind=json,path={place.folder / 'guidellm.json'}"),
        ]

    def environment(self) -> Mapping[str, str]:
        return {"HF_HUB_OFFLINE": "1", "GUIDELLM__MAX_WORKER_PROCESSES": "1"}

    def measured(self, place: Place) -> Measured:
        (found,) = json.loads((place.folder / "guidellm.json").read_text())["benchmarks"]
        metrics = found["metrics"]
        ttft, itl = (metrics[name]["successful"] for name in ("time_to_first_token_ms", "inter_token_latency_ms"))
        return Measured(
            requests=metrics["request_totals"]["successful"],
            failed=metrics["request_totals"]["errored"],
            ttft_mean=ttft["mean"] / 1000,
            ttft=_seconds(ttft),
            itl=_seconds(itl),
        )


def _seconds(found: Mapping[str, Any]) -> dict[str, float]:
    return {name: found["percentiles"][name] / 1000 for name in ("p50", "p95", "p99")}


def installed(state: Path) -> Path:
    """An environment with GuideLLM and uvloop, made the first time (minutes)."""
    environment, done = state / "peers", state / "peers" / f"guidellm-{GUIDELLM}"
    if not done.exists():
        print(f"installing guidellm {GUIDELLM} into {environment}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        pip = [environment / "bin" / "pip", "install", "--quiet", f"guidellm=={GUIDELLM}", "uvloop"]
        subprocess.run(pip, check=True, stdout=sys.stderr)
        done.touch()
    return environment


def pinned(core: int, command: list[str]) -> list[str]:
    """The same command, all of whose processes run on one core."""
    return ["taskset", "--cpu-list", str(core), *command]


def environment_of(client: Client) -> dict[str, str]:
    """Ours, and what the client wants to be told."""
    return {**os.environ, **client.environment()}
