"""What makes vLLM miss a compile cache, and whether an engine's entrypoint names it at start: one start for each.

A built engine is started with one thing changed at a time, told to fail instead of compiling again. What a machine has
only one of (its GPU, driver, torch, ...) is changed in the manifest: as if the engine had been built where it differs.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu.engines import built, order_for, say, servers
from benchmarks.gpu.reports import PartReport
from benchmarks.gpu.task import Task
from engine_images.adapters.builder import MUST_LOAD, StartAttempt, score_prompts, start_engine
from engine_images.build.engine_root import write_root
from engine_images.build.model import BuildRequest, BuiltEngine
from engine_images.build.proof import EngineStart, without_hashes
from engine_images.entrypoint.compile_key import differences
from engine_images.manifest import CompileKey, EngineManifest
from registry.files import digest_files, whole_digest
from tidegate.core.errors import OutsideError

SAID = re.compile(r"the compile key differs factor=(\S+?): built with")

ELSEWHERE = "another"
"""In a manifest, the value of every factor that this machine has only one of."""

START_SECONDS = 60.0
"""That one more must have, before any was measured."""


@dataclass(frozen=True)
class Changed:
    """One thing that is other than it was when the engine was built."""

    what: str
    factors: frozenset[str] = frozenset()
    """That the entrypoint must name; none where it must not matter."""
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    """Of the model's `config.json`."""
    elsewhere: bool = False
    """The manifest says that it was built on another machine."""
    where: str = ""
    """`cpu` or `gpu`, where it is only there."""
    small: bool = False
    """Looked at also where it is only to be seen that it works."""


def _argument(name: str, value: str, **more: Any) -> Changed:
    return Changed(f"argument {name}", frozenset({f"argument:--{name}"}), arguments=(f"--{name}={value}",), **more)


def _variable(name: str, value: str, **more: Any) -> Changed:
    return Changed(f"variable {name}", frozenset({f"env:{name}"}), environment={name: value}, **more)


CHANGES = (
    Changed("same: nothing", small=True),
    Changed("same: seed", arguments=("--seed=7",)),
    Changed("same: prefix caching", arguments=("--no-enable-prefix-caching",)),
    Changed("same: served name", arguments=("--served-model-name=other",)),
    Changed("same: log level", environment={"VLLM_LOGGING_LEVEL": "WARNING"}),
    Changed("same: share of the GPU's memory", arguments=("--gpu-memory-utilization=0.5",), where="gpu"),
    _argument("max-model-len", "200"),
    _argument("max-num-seqs", "7", small=True),
    _argument("max-num-batched-tokens", "1500"),
    _argument("block-size", "64"),
    _argument("dtype", "float16"),
    _argument("max-logprobs", "7"),
    _argument("revision", "other"),
    _argument("compilation-config", '{"cudagraph_mode": "NONE"}', where="gpu"),
    _variable("VLLM_ENGINE_READY_TIMEOUT_S", "601", small=True),
    _variable("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "1"),
    _variable("VLLM_CPU_OMP_THREADS_BIND", "nobind", where="cpu"),
    _variable("TORCHINDUCTOR_COORDINATE_DESCENT_TUNING", "1", where="gpu"),
    _variable("CXX", shutil.which("g++") or "g++"),
    Changed("model config rms_norm_eps", frozenset({"model_config"}), config={"rms_norm_eps": 0.1}),
    Changed("built on another machine", elsewhere=True, small=True),
)


def changes_there(*, on_cpu: bool, small: bool) -> tuple[list[Changed], dict[str, str]]:
    """What can be changed, and why the rest is not."""
    absent = {
        change.what: f"only where a {change.where} computes" if _is_elsewhere(change, on_cpu) else "--small"
        for change in CHANGES
        if _is_elsewhere(change, on_cpu) or (small and not change.small)
    }
    return [change for change in CHANGES if change.what not in absent], absent


def _is_elsewhere(change: Changed, on_cpu: bool) -> bool:
    return bool(change.where) and (change.where == "cpu") is not on_cpu


async def measure(task: Task, report: PartReport) -> None:
    """Of the first model; its engine is found where the starts were measured before."""
    order = order_for(task, task.first)
    engine = await built(order, task.state)
    there, absent = changes_there(on_cpu=task.on_cpu, small=task.small)
    for what, why in absent.items():
        report.leave_out(what, why)
    found: dict[str, Any] = {}
    longest = START_SECONDS
    for change in there:
        before = task.limit.left
        if before < longest:
            report.leave_out(change.what, f"one start takes {longest:.0f} s, and {max(before, 0):.0f} s were left")
            continue
        say(change.what)
        with report.going_on(change.what):
            found[change.what] = await missed(order, engine, change, task.state)
        longest = max(longest, before - task.limit.left)
        report.put("changes", found)
    report.put("named", summary(found))


def summary(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """How many were named as they must be, and those that were not."""
    wrong = [what for what, seen in found.items() if not seen["as_expected"]]
    return {"changes": len(found), "as_expected": len(found) - len(wrong), "otherwise": wrong}


async def missed(order: BuildRequest, engine: BuiltEngine, change: Changed, state: Path) -> dict[str, Any]:
    """Start it changed; what vLLM did, and which factors the entrypoint named before vLLM began."""
    folder = (state / "misses").absolute()
    environment = {**MUST_LOAD, **change.environment}
    attempt = StartAttempt("changed", folder, folder / "run", arguments=change.arguments, environment=environment)
    name = "other" if "--served-model-name=other" in change.arguments else order.served_name
    asked = order.model_copy(update={"prompts": order.prompts[:1], "served_name": name})
    failed = False
    try:
        root = _root(order, engine, change, state)
        started, _ = await start_engine(servers(), score_prompts, asked, root, attempt)
    except OutsideError:
        # Not the log: an engine that is told to say little does not tell what it loads.
        started, failed = attempt.seen(), True
    text = attempt.log.read_text(encoding="utf-8", errors="replace")
    named = SAID.findall(text)
    return {
        "missed": failed,
        "entrypoint": named,
        "vllm": list(own_names(engine, started)),
        "as_expected": as_expected(change, named, failed=failed, key=_key_of(engine)),
    }


def as_expected(change: Changed, named: Sequence[str], *, failed: bool, key: CompileKey | None) -> bool:
    """Whether each factor that was changed is named and no other, and what must not matter did not."""
    if change.elsewhere:
        return not failed and key is not None and set(named) == set(_of_the_machine(key))
    return set(named) == change.factors and not (failed and not change.factors)


def own_names(engine: BuiltEngine, started: EngineStart) -> Iterator[str]:
    """Where vLLM's own key differs."""
    cold = engine.record.cold
    if cold and cold.key and started.key:
        for line in without_hashes(differences(cold.key.factors, started.key.factors)):
            yield line.split(":", 1)[0]


def _root(order: BuildRequest, engine: BuiltEngine, change: Changed, state: Path) -> Path:
    """The engine, or the same one around another configuration of the model, or as another machine built it."""
    if not change.config and not change.elsewhere:
        return engine.root
    folder, root = order.folder, state.absolute() / "other-root"
    manifest = EngineManifest.model_validate_json((engine.root / "manifest.json").read_bytes())
    if change.config:
        folder = _other_model(order.folder, state.absolute() / "other-model", change.config)
        files = digest_files(folder)
        model = manifest.model.model_copy(update={"files": files, "digest": whole_digest(files)})
        manifest = manifest.model_copy(update={"model": model})
    if change.elsewhere and manifest.key:
        factors = {**manifest.key.factors, **dict.fromkeys(_of_the_machine(manifest.key), ELSEWHERE)}
        manifest = manifest.model_copy(update={"key": CompileKey(factors=factors)})
    write_root(root, manifest, folder, engine.root / "cache")
    return root


def _other_model(source: Path, folder: Path, config: Mapping[str, Any]) -> Path:
    """As if only the one file had been replaced."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **config}), encoding="utf-8")
    return folder


def _key_of(engine: BuiltEngine) -> CompileKey | None:
    return EngineManifest.model_validate_json((engine.root / "manifest.json").read_bytes()).key


def _of_the_machine(key: CompileKey) -> list[str]:
    """The factors that a machine has one of: no argument, no variable, not the model."""
    return sorted(name for name in key.factors if ":" not in name and name != "model_config")
