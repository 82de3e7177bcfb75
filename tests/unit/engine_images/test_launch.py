from __future__ import annotations

import json

import pytest

from engine_images.accelerators import Accelerator
from engine_images.arguments.values import ArgumentValue
from engine_images.choices import CompileMode
from engine_images.errors import VersionMismatch
from engine_images.launch import launch_of
from engine_images.manifest import Launch
from engine_images.model import EngineEnvironment
from engine_images.spec import CompileSpec, EngineSettings, SamplingSpec, VllmSpec
from tidegate.core.errors import ExitCode

ENVIRONMENT = EngineEnvironment(python="/engine/bin/python", vllm="0.32.0", recipe="0" * 64)


def settings(*, mode: CompileMode = CompileMode.DEFAULT, **args: ArgumentValue) -> EngineSettings:
    named = {name.replace("_", "-"): value for name, value in args.items()}
    return EngineSettings(vllm=VllmSpec(version="0.32.0", args=named), compile=CompileSpec(mode=mode))


def launch(wanted: EngineSettings, *, name: str = "llm") -> Launch:
    return launch_of(wanted, ENVIRONMENT, name=name)


def follows(arguments: tuple[str, ...], argument: str) -> str:
    return arguments[arguments.index(argument) + 1]


def test_the_model_has_one_path_for_every_version_so_that_they_share_the_compile_cache() -> None:
    assert follows(launch(settings()).arguments, "--model") == "model"


SAMPLING = SamplingSpec(temperature=0.5, max_tokens=64)


@pytest.mark.parametrize(
    ("wanted", "argument", "said"),
    [
        (settings(reasoning_parser="--port"), "--reasoning-parser", ["--reasoning-parser=--port"]),
        (settings(mode=CompileMode.NONE), "--enforce-eager", ["--enforce-eager"]),
        (
            settings().model_copy(update={"sampling": SAMPLING}),
            "--override-generation-config",
            ['--override-generation-config={"max_new_tokens":64,"temperature":0.5}'],
        ),
        # The default is for a CPU: the spec's replaces it, and a GPU has memory of its own.
        (settings(kv_cache_memory_bytes=5), "--kv-cache-memory-bytes", ["--kv-cache-memory-bytes=5"]),
        (settings().model_copy(update={"accelerator": Accelerator.H100}), "--kv-cache-memory-bytes", []),
    ],
)
def test_each_setting_has_its_argument_once(wanted: EngineSettings, argument: str, said: list[str]) -> None:
    assert [word for word in launch(wanted).arguments if word.startswith(argument)] == said


def test_weights_are_loaded_as_the_spec_says() -> None:
    arguments = launch(settings(load_format="runai_streamer")).arguments
    assert follows(arguments, "--load-format") == "runai_streamer"
    assert not [each for each in arguments if each.startswith("--load-format=")]


def test_an_engine_asks_nobody_on_the_network_and_leaves_it_to_gateways_to_close_connections() -> None:
    environment = launch(settings()).environment
    assert environment["HF_HUB_OFFLINE"] == environment["VLLM_NO_USAGE_STATS"] == "1"
    assert int(environment["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"]) > 3600


def test_only_engines_on_a_cpu_save_a_process() -> None:
    on_gpu = settings().model_copy(update={"accelerator": Accelerator.H100})
    assert launch(settings()).environment["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert "VLLM_ENABLE_V1_MULTIPROCESSING" not in launch(on_gpu).environment


def test_another_vllm_than_the_installed_one_is_refused_in_one_line() -> None:
    other = EngineSettings(vllm=VllmSpec(version="0.31.1"))
    with pytest.raises(VersionMismatch) as caught:
        launch(other)
    assert str(caught.value) == (
        "the spec pins vLLM 0.31.1, but /engine/bin/python has 0.32.0; set engine.vllm.version to 0.32.0"
    )
    assert caught.value.exit_code is ExitCode.USAGE


def test_max_autotune_is_added_to_the_specs_own_compilation_config() -> None:
    own = {"compile_sizes": [1], "inductor_compile_config": {"epilogue_fusion": True}}
    (argument,) = [
        argument
        for argument in launch(settings(mode=CompileMode.MAX_AUTOTUNE, compilation_config=own)).arguments
        if argument.startswith("--compilation-config")
    ]
    assert json.loads(argument.partition("=")[2]) == {
        "compile_sizes": [1],
        "inductor_compile_config": {"max_autotune": True, "epilogue_fusion": True},
    }
