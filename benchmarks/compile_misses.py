"""Which changes make vLLM miss a compile cache, and who says so by name: one start each, as JSON.

    .venv/bin/python benchmarks/compile_misses.py MODEL --state .tidegate/bench > result.json

`MODEL` is a Hugging Face directory. Its engine is built first, or found in `--state`, and then started with one thing
changed at a time, told to fail instead of compiling again. `missed` is what vLLM did; `entrypoint` are the factors
that our entrypoint named before vLLM began, `vllm` those in which vLLM's own key differs. A change whose name starts
with `same:` is one that must not matter.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine_start import machine, order_of

from engine_images.adapters.vllm_runner import MUST_LOAD, CompletionScorer, VllmRunner, log_of, start_of
from engine_images.build.builder import Builder
from engine_images.build.engine_root import write_root
from engine_images.build.engine_store import EngineStore
from engine_images.build.model import BuildRequest, BuiltEngine
from engine_images.build.proof import EngineStart, without_hashes
from engine_images.manifest import EngineManifest
from engine_images.ports import BuildRunner, StartAttempt
from pipelines.adapters.local_engines import BuildServers
from registry.model_files import digest_files, whole_digest
from tidegate.core.clock import SystemClock
from tidegate.core.errors import OutsideError

SAID = re.compile(r"the compile key differs factor=(\S+?): built with")


@dataclass(frozen=True)
class Changed:
    """One thing that is other than it was when the engine was built."""

    what: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    """Of the model's `config.json`."""


CHANGES = (
    Changed("same: nothing"),
    Changed("same: seed", ("--seed=7",)),
    Changed("same: prefix caching", ("--no-enable-prefix-caching",)),
    Changed("same: served name", ("--served-model-name=other",)),
    Changed("same: log level", environment={"VLLM_LOGGING_LEVEL": "WARNING"}),
    Changed("argument max-model-len", ("--max-model-len=200",)),
    Changed("argument max-num-seqs", ("--max-num-seqs=7",)),
    Changed("argument max-num-batched-tokens", ("--max-num-batched-tokens=300",)),
    Changed("argument block-size", ("--block-size=64",)),
    Changed("argument dtype", ("--dtype=bfloat16",)),
    Changed("argument max-logprobs", ("--max-logprobs=7",)),
    Changed("argument revision", ("--revision=other",)),
    Changed("variable VLLM_ENGINE_READY_TIMEOUT_S", environment={"VLLM_ENGINE_READY_TIMEOUT_S": "601"}),
    Changed("variable VLLM_ALLOW_RUNTIME_LORA_UPDATING", environment={"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}),
    Changed("variable VLLM_CPU_OMP_THREADS_BIND", environment={"VLLM_CPU_OMP_THREADS_BIND": "nobind"}),
    Changed("compiler CXX", environment={"CXX": shutil.which("g++") or "g++"}),
    Changed("model config rms_norm_eps", config={"rms_norm_eps": 0.1}),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Find out what makes vLLM miss a compile cache.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--state", type=Path, default=Path(".tidegate/bench"))
    parser.add_argument("--only", default="", help="changes whose names have this in them")
    arguments = parser.parse_args()
    print(json.dumps(asyncio.run(measure(arguments.model, arguments.state, arguments.only)), indent=2))


async def measure(model: Path, state: Path, only: str) -> dict[str, Any]:
    order, runner = order_of(model), VllmRunner(BuildServers(SystemClock(), name="bench"), CompletionScorer())
    built = await Builder(EngineStore(state), runner).build(order, say)
    found = {}
    for change in (change for change in CHANGES if only in change.what):
        say(change.what)
        root = built.root if not change.config else other_root(order, built, state, change.config)
        found[change.what] = await seen(runner, order, root, built, change, folder=state / "misses")
    return {"machine": machine(), "engine": built.engine, "changes": found}


async def seen(
    runner: BuildRunner, order: BuildRequest, root: Path, built: BuiltEngine, change: Changed, *, folder: Path
) -> dict[str, Any]:
    """Start it changed, and read what was said of it."""
    environment = {**MUST_LOAD, **change.environment}
    folder = folder.absolute()
    attempt = StartAttempt("changed", folder, folder / "run", arguments=change.arguments, environment=environment)
    name = "other" if "--served-model-name=other" in change.arguments else order.served_name
    asked = order.model_copy(update={"prompts": order.prompts[:1], "served_name": name})
    missed = False
    try:
        started = (await runner.start(asked, root, attempt)).start
    except OutsideError:
        # Not the log: an engine that is told to say little does not tell what it loads.
        started, missed = start_of(attempt), True
    return {
        "missed": missed,
        "entrypoint": SAID.findall(log_of(attempt).read_text(encoding="utf-8")),
        "vllm": list(own_names(built, started)),
    }


def own_names(built: BuiltEngine, started: EngineStart) -> Iterator[str]:
    cold = built.record.cold
    if cold and cold.key and started.key:
        for line in without_hashes(cold.key.differences(started.key)):
            yield line.split(":", 1)[0]


def other_root(order: BuildRequest, built: BuiltEngine, state: Path, config: Mapping[str, Any]) -> Path:
    """The same engine around a model with another configuration, as if only that file had been replaced."""
    folder, root = state.absolute() / "other-model", state.absolute() / "other-root"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(order.folder, folder)
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **config}), encoding="utf-8")
    manifest = EngineManifest.model_validate_json((built.root / "manifest.json").read_bytes())
    files = digest_files(folder)
    model = manifest.model.model_copy(update={"files": files, "digest": whole_digest(files)})
    write_root(root, manifest.model_copy(update={"model": model}), folder, built.root / "cache")
    return root


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
