"""Engines that share GPUs: what each takes of them, and what vLLM is told so that it takes no more."""

from __future__ import annotations

import pytest
from fakes.engines.models import LLAMA_8B, SMOLLM2, tensors_of

from engine_images.accelerators import DEVICES, GIBIBYTE, Accelerator
from engine_images.arguments.values import ArgumentValue
from engine_images.checks.files import VersionFiles
from engine_images.checks.servable import footprint_of, share_of, sharing_gpus
from engine_images.choices import CompileMode
from engine_images.model import GpuShare
from engine_images.spec import CompileSpec, EngineSettings, VllmSpec


def version(config: dict[str, object] = SMOLLM2) -> VersionFiles:
    files = ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "model.safetensors")
    return VersionFiles(
        sizes=dict.fromkeys(files, 1000),
        documents={"config.json": config, "tokenizer_config.json": {}},
        tensors={"model.safetensors": tuple(tensors_of(config))},
    )


def settings(on: Accelerator = Accelerator.H100, *, count: int = 1, **args: ArgumentValue) -> EngineSettings:
    named = {"max-model-len": 512} | {name.replace("_", "-"): value for name, value in args.items()}
    return EngineSettings(
        vllm=VllmSpec(version="0.32.0", args=named),
        accelerator=on,
        accelerator_count=count,
        compile=CompileSpec(mode=CompileMode.NONE),
    )


def shared(wanted: EngineSettings, config: dict[str, object] = SMOLLM2) -> GpuShare:
    share = share_of(version(config), wanted)
    assert share is not None
    return share


def told(share: GpuShare) -> dict[str, str]:
    return dict(argument.removeprefix("--").split("=") for argument in share.arguments)


def test_an_engine_is_told_a_kv_cache_of_fixed_size_and_the_share_that_must_be_free() -> None:
    share = shared(settings())
    assert int(told(share)["kv-cache-memory-bytes"]) == GIBIBYTE
    memory = DEVICES[Accelerator.H100].memory_bytes or 0
    # Rounded up to a thousandth: vLLM looks whether so much of the whole GPU is free.
    assert share.each_bytes <= float(told(share)["gpu-memory-utilization"]) * memory < share.each_bytes + memory / 1000
    assert (share.count, share.names) == (1, DEVICES[Accelerator.H100].names)


@pytest.mark.parametrize("on", [each for each in Accelerator if each.startswith("nvidia-")])
def test_two_regions_with_a_canary_each_fit_every_gpu_that_is_known(on: Accelerator) -> None:
    memory = DEVICES[on].memory_bytes or 0
    assert 4 * shared(settings(on)).each_bytes < memory
    assert 4 * float(told(shared(settings(on)))["gpu-memory-utilization"]) < 1


def test_what_an_engine_takes_is_its_footprint() -> None:
    assert shared(settings()).each_bytes == footprint_of(version(), sharing_gpus(settings())).needed


def test_a_kv_cache_that_the_spec_says_is_kept() -> None:
    larger = shared(settings(kv_cache_memory_bytes="8G"))
    assert larger.each_bytes - shared(settings()).each_bytes == 7 * GIBIBYTE
    assert told(larger).keys() == {"gpu-memory-utilization"}


def test_a_share_that_the_spec_says_is_kept_and_taken_whole() -> None:
    share = shared(settings(gpu_memory_utilization=0.5))
    assert share.arguments == ()
    assert share.each_bytes == int((DEVICES[Accelerator.H100].memory_bytes or 0) * 0.5)


def test_an_engine_over_several_gpus_takes_its_share_on_each() -> None:
    whole, cut = shared(settings(), LLAMA_8B), shared(settings(count=2, tensor_parallel_size=2), LLAMA_8B)
    assert cut.count == 2
    assert whole.each_bytes / 2 < cut.each_bytes < whole.each_bytes


def test_an_engine_on_a_cpu_shares_no_gpu() -> None:
    assert share_of(version(), settings(Accelerator.CPU)) is None
    assert sharing_gpus(settings(Accelerator.CPU)) == settings(Accelerator.CPU)
