"""The engine environment as the base of engines: on an operating system Python, vLLM and torch at their places. Pure.

    base        the operating system, with a C compiler
    Python      the one that the environment was made with, unless it is the operating system's own
    CUDA        NVIDIA's libraries, of an environment for GPUs
    torch       with Triton, which compiles for it
    libraries   what else vLLM needs
    vLLM        with what is ours

A release of vLLM that keeps its torch changes only the uppermost layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from engine_images.choices import EnginePlatform
from engine_images.environment.recipe import DISTRIBUTION
from engine_images.model import EngineEnvironment
from engine_images.oci.compose import PlannedLayer
from engine_images.oci.model import USUAL_PATH, Base, Runtime

LABEL = "dev.tidegate.environment"
COMPILERS = ("gcc", "cc", "clang")
"""One of them is asked for: vLLM links compiled code at every start."""
BINARIES = tuple(USUAL_PATH.split(":"))
_TORCH = ("torch", "torchaudio", "torchvision", "torchgen", "functorch", "triton")
_ORDER = ("Python", "CUDA", "torch", "libraries", "vLLM")


def environment_layers(home: str, files: Mapping[str, Path], links: Mapping[str, str]) -> tuple[PlannedLayer, ...]:
    """The layers, lowest first; one that would be empty is none.

    Args:
        home: where the environment is, here as in the image.
        files: of the environment and of its Python, by absolute path.
        links: symbolic links among them, and where each leads.
    """
    files_of: dict[str, dict[str, Path]] = {title: {} for title in _ORDER}
    links_of: dict[str, dict[str, str]] = {title: {} for title in _ORDER}
    for place, path in files.items():
        files_of[_layer(home, place)][place] = path
    for place, target in links.items():
        links_of[_layer(home, place)][place] = target
    return tuple(
        PlannedLayer(title, files_of[title], links_of[title]) for title in _ORDER if files_of[title] or links_of[title]
    )


def _layer(home: str, place: str) -> str:
    if not place.startswith(f"{home}/"):
        return "Python"
    parts = PurePosixPath(place).parts
    if "site-packages" not in parts:
        return "vLLM"
    package = parts[parts.index("site-packages") + 1].lower()
    if package.startswith(("nvidia", "cuda_")):
        return "CUDA"
    if package.startswith("vllm"):
        return "vLLM"
    return "torch" if package.partition("-")[0] in _TORCH else "libraries"


def environment_labels(environment: EngineEnvironment) -> dict[str, str]:
    """What the image says of the environment in it."""
    said = {
        "python": environment.python,
        "platform": environment.platform,
        "vllm": environment.vllm,
        "recipe": environment.recipe,
    }
    return {f"{LABEL}.{name}": str(text) for name, text in said.items()}


def environment_runtime(base: Base, environment: EngineEnvironment) -> Runtime:
    """The environment's Python as the first process, which finds a compiler where the operating system has it."""
    return Runtime(
        entrypoint=(environment.python,),
        environment={"PATH": base.search_path},
        labels=environment_labels(environment),
    )


def other_environment(base: Base, environment: EngineEnvironment) -> str | None:
    """How the environment in a base differs from the one that engines are built with; empty where it is the same.

    None where the base's labels do not tell.
    """
    labels = (base.config.get("config") or {}).get("Labels") or {}
    wanted = environment_labels(environment)
    if not wanted.keys() & labels.keys():
        return None
    return ", ".join(
        f"{name.removeprefix(f'{LABEL}.')} {labels.get(name, 'unknown')} where {text} is expected"
        for name, text in wanted.items()
        if labels.get(name) != text
    )


def lacking(places: frozenset[str], *, python: str = "", libraries: frozenset[str] = frozenset()) -> Iterator[str]:
    """What an image whose layers hold files at `places` lacks.

    Args:
        places: absolute paths.
        python: the interpreter that has to be there; empty where it comes along.
        libraries: names of shared libraries that Python loads from the operating system, such as `libssl.so.3`.
    """
    if python and python not in places:
        yield python
    if not any(f"{folder}/{name}" in places for folder in BINARIES for name in COMPILERS):
        yield f"a C compiler ({', '.join(COMPILERS)})"
    yield from sorted(libraries - {PurePosixPath(place).name for place in places})


def lacking_environment(places: frozenset[str], environment: EngineEnvironment) -> Iterator[str]:
    """What an image whose layers hold files at `places` lacks of the environment that engines are built with."""
    yield from lacking(places, python=environment.python)
    names = DISTRIBUTION.values() if environment.platform is EnginePlatform.CPU else ("vllm",)
    metadata = tuple(
        f"{folder}/{name.replace('-', '_')}-{environment.vllm}.dist-info/METADATA"
        for folder in environment.site_packages
        for name in names
    )
    if metadata and not places & set(metadata):
        yield f"vLLM {environment.vllm} for {environment.platform} in {', '.join(environment.site_packages)}"
