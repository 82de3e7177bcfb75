from __future__ import annotations

from pathlib import Path

import pytest

from engine_images.accelerators import Accelerator
from engine_images.arguments.model import ArgumentValue
from engine_images.errors import VersionMismatch
from engine_images.launch import launch_command
from engine_images.model import EngineEnvironment, LaunchCommand, Weights
from engine_images.sampling import SamplingSpec
from engine_images.spec import CompileMode, CompileSpec, EngineSettings, VllmSpec
from tidegate.core.errors import ExitCode

ENVIRONMENT = EngineEnvironment(python="/engine/bin/python", vllm="0.32.0")


def settings(*, mode: CompileMode = CompileMode.DEFAULT, **args: ArgumentValue) -> EngineSettings:
    named = {name.replace("_", "-"): value for name, value in args.items()}
    return EngineSettings(vllm=VllmSpec(version="0.32.0", args=named), compile=CompileSpec(mode=mode))


def launch(wanted: EngineSettings, *, workdir: str = "/state/engines/abc", name: str = "llm") -> LaunchCommand:
    weights = Weights(elements={"F32": 1000})
    folders = {"workdir": Path(workdir), "cache": Path("/state/cache")}
    return launch_command(wanted, ENVIRONMENT, weights, name=name, threads=2, **folders)


def follows(command: tuple[str, ...], argument: str) -> str:
    return command[command.index(argument) + 1]


def test_the_engine_listens_on_loopback_at_the_port_that_the_fleet_picks() -> None:
    command = launch(settings()).command
    assert (follows(command, "--host"), follows(command, "--port")) == ("127.0.0.1", "{port}")


def test_two_versions_of_one_architecture_start_alike_so_that_they_share_the_compile_cache() -> None:
    first = launch(settings(dtype="float32"), workdir="/state/engines/abc")
    second = launch(settings(dtype="float32"), workdir="/state/engines/def")
    assert first.command == second.command
    assert first.environment == second.environment
    assert first.workdir != second.workdir


def test_the_model_is_addressed_relative_to_the_folder_of_the_engine() -> None:
    started = launch(settings())
    assert (started.workdir, follows(started.command, "--model")) == ("/state/engines/abc", "model")


def test_answers_in_flight_are_finished_when_the_engine_is_told_to_stop() -> None:
    assert int(follows(launch(settings()).command, "--shutdown-timeout")) > 0


def test_weights_are_never_unpickled() -> None:
    assert follows(launch(settings()).command, "--load-format") == "safetensors"


def test_arguments_of_the_spec_are_passed_on_in_a_fixed_order() -> None:
    wanted = settings(max_model_len=1024, dtype="float32", enable_log_requests=True, enable_prefix_caching=False)
    assert launch(wanted).command[-4:] == (
        "--dtype=float32",
        "--enable-log-requests",
        "--no-enable-prefix-caching",
        "--max-model-len=1024",
    )


def test_a_value_that_looks_like_an_argument_stays_a_value() -> None:
    assert "--reasoning-parser=--port" in launch(settings(reasoning_parser="--port")).command


def test_json_and_lists_are_written_as_vllm_reads_them() -> None:
    wanted = settings(
        enable_lora=True,
        lora_modules=[{"path": "model/sql", "name": "sql"}, "law=model/law"],
        allowed_origins=["https://example.org"],
    )
    assert launch(wanted).command[-5:] == (
        '--allowed-origins=["https://example.org"]',
        "--enable-lora",
        "--lora-modules",
        '{"name":"sql","path":"model/sql"}',
        "law=model/law",
    )


def test_the_spec_s_sampling_defaults_replace_the_version_s() -> None:
    wanted = settings().model_copy(update={"sampling": SamplingSpec(temperature=0.5, max_tokens=64)})
    assert '--override-generation-config={"max_new_tokens":64,"temperature":0.5}' in launch(wanted).command
    assert not any("generation-config" in word for word in launch(settings()).command)


def test_an_accelerator_with_memory_of_its_own_keeps_vllm_s_kv_cache() -> None:
    wanted = settings().model_copy(update={"accelerator": Accelerator.H100})
    assert "--kv-cache-memory-bytes" not in launch(wanted).command


def test_an_engine_that_is_not_compiled_runs_eagerly() -> None:
    assert "--enforce-eager" in launch(settings(mode=CompileMode.NONE)).command
    assert "--enforce-eager" not in launch(settings()).command


def test_the_kv_cache_of_the_spec_replaces_the_default_one() -> None:
    command = launch(settings(kv_cache_memory_bytes=5)).command
    assert "--kv-cache-memory-bytes=5" in command
    assert "--kv-cache-memory-bytes" not in command


def test_an_engine_asks_nobody_on_the_network_and_imports_nothing_from_the_model() -> None:
    environment = launch(settings()).environment
    assert environment["HF_HUB_OFFLINE"] == environment["VLLM_NO_USAGE_STATS"] == environment["PYTHONSAFEPATH"] == "1"


def test_the_threads_of_an_engine_are_limited() -> None:
    assert launch(settings()).environment["OMP_NUM_THREADS"] == "2"


def test_a_relative_cache_is_found_from_the_folder_of_the_engine_too() -> None:
    weights = Weights(elements={})
    started = launch_command(
        settings(), ENVIRONMENT, weights, name="llm", workdir=Path("engines/abc"), cache=Path("cache"), threads=1
    )
    assert Path(started.environment["VLLM_CACHE_ROOT"]).is_absolute()


def test_another_vllm_than_the_installed_one_is_refused_in_one_line() -> None:
    other = EngineSettings(vllm=VllmSpec(version="0.31.1"))
    with pytest.raises(VersionMismatch) as caught:
        launch(other)
    assert str(caught.value) == (
        "the spec pins vLLM 0.31.1, but /engine/bin/python has 0.32.0; set engine.vllm.version to 0.32.0"
    )
    assert caught.value.exit_code is ExitCode.USAGE
