"""What engines need on this machine: packages of the operating system, and an environment for vLLM and torch.

The path of the environment is fixed because it is part of what vLLM's compile cache remembers, and because the
engine image has it at the same place (docs/internals/decisions/0002). It is made once for each lock file, for one
platform; where a variable names a Python that has vLLM already, that one is looked at instead.
"""

from __future__ import annotations

import ctypes.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import distributions
from pathlib import Path

from uv import find_uv_bin

from engine_images.adapters.found_environment import PYTHON_VARIABLE, found_environment
from engine_images.choices import EnginePlatform
from engine_images.environment.recipe import (
    CPU_TORCH,
    DISTRIBUTION,
    PYPI_TORCH,
    RECIPES,
    SIZE,
    known_digests,
    lock_of,
    recipe_digest,
)
from engine_images.errors import EnvironmentMissing
from engine_images.model import EngineEnvironment
from tidegate.core.errors import OutsideError
from tidegate.core.files import file_lock

HOME_VARIABLE = "TIDEGATE_ENGINE_HOME"
DEFAULT_HOME = Path("/opt/tidegate/engine")

TORCH_INDEX = "download.pytorch.org"
"""Where the builds without CUDA are."""

OTHER_WAYS = "behind a proxy set HTTPS_PROXY; without a network: tidegate setup --wheels FOLDER (docs/start/setup.md)"

TO_THE_FOLDER = "the folder of wheels lacks it (docs/start/setup.md)"

PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
"""What apt-get needs of our variables; sudo would drop them."""

STAMP = "tidegate.stamp"
"""Written last; holds the digest of the recipe, so that a half-made or old environment is made again."""

UNCOMPILABLE = r"py312_intrinsics\.py"
"""torch carries a test file in the syntax of Python 3.12; older Pythons never import it."""

Progress = Callable[[str], None]


def engine_home() -> Path:
    """Where the engine environment is, or belongs."""
    return Path(os.environ.get(HOME_VARIABLE) or DEFAULT_HOME)


def find_engine_environment(platform: EnginePlatform | None = None) -> EngineEnvironment:
    """The engine environment as it is installed, for `platform`, or for whichever it is.

    Raises:
        EnvironmentMissing: it was not made yet, or for another version of tidegate, or for another platform; or the
            one that the person named cannot serve.
    """
    named = os.environ.get(PYTHON_VARIABLE)
    if named:
        return found_environment(Path(named), platform)
    home = engine_home()
    made_for = _made_for(home)
    if made_for is None:
        raise EnvironmentMissing(f"no engine environment for this tidegate at {home}", hint=_how_to_make(platform))
    if platform not in {None, made_for}:
        raise EnvironmentMissing(
            f"the engine environment at {home} is for {made_for}; expected one for {platform}",
            hint=f"set {HOME_VARIABLE} to another folder and {_how_to_make(platform)}",
        )
    return _describe(home, made_for)


def ensure_engine_environment(
    progress: Progress, wheels: Path | None = None, platform: EnginePlatform = EnginePlatform.CPU
) -> EngineEnvironment:
    """Make the engine environment unless it is there; a half-made one is made again.

    Two calls at once wait for each other. `progress` gets a line before each long step. From a folder of `wheels` it is
    made without any network. One that the person named is checked, and nothing is made.

    Raises:
        EnvironmentMissing: it could not be made; `detail` has what the failing program said.
    """
    if os.environ.get(PYTHON_VARIABLE):
        return find_engine_environment(platform)
    home = engine_home()
    if not _made_for(home):
        with _only_one(home, progress):
            # The one before us may have made it.
            if not _made_for(home):
                _make(home, progress, wheels, platform)
    return find_engine_environment(platform)


def _how_to_make(platform: EnginePlatform | None) -> str:
    return "run: tidegate setup" + (f" --platform {platform}" if platform is EnginePlatform.CUDA else "")


def _make(home: Path, progress: Progress, wheels: Path | None, platform: EnginePlatform) -> None:
    python = home / "bin" / "python"
    uv = find_uv_bin()
    if _stamped(home):
        progress(f"replacing the engine environment at {home}: it is of another tidegate, or of another Python")
    progress(f"making the engine environment at {home} ({SIZE[platform]}, once)")
    _run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(home)])
    progress("installing vLLM and torch")
    install = [uv, "pip", "install", "--python", str(python)]
    digest = _install_all(install, progress, wheels, platform)
    progress("compiling their Python files")
    # unchecked-hash: the files stay valid in an image layer, where every time stamp is 0. Without compiled
    # files each start of an engine takes 15 s longer, and PYTHONDONTWRITEBYTECODE would keep it so.
    compileall = ["-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash", "-x", UNCOMPILABLE]
    _run([str(python), *compileall, str(home / "lib")])
    # Last of all: whatever fails or is killed before leaves no stamp.
    (home / STAMP).write_text(digest, encoding="ascii")


def _install_all(install: list[str], progress: Progress, wheels: Path | None, platform: EnginePlatform) -> str:
    """Install the platform's lock; returns the name of what was made."""
    if wheels is not None and not wheels.is_dir():
        raise EnvironmentMissing(f"{wheels} is no folder of wheels", hint="name one with --wheels")
    if wheels is not None:
        install = [*install, "--offline", "--no-index", f"--find-links={wheels.absolute()}"]
    if platform is EnginePlatform.CPU:
        return recipe_digest(platform, _install_packages(install, progress, wheels))
    _run([*install, "--no-deps", "-r", str(lock_of(platform)), str(RECIPES / "plugin")], progress)
    return recipe_digest(platform)


def _install_packages(install: list[str], progress: Progress, wheels: Path | None) -> str:
    """Everything that the lock for CPUs names, and torch: from a folder of wheels, its own index, or PyPI.

    Returns:
        The torch that was installed.
    """
    if wheels is not None:
        release = PYPI_TORCH.replace("==", "-")
        return _install(install, CPU_TORCH if any(wheels.glob(f"{release}+cpu-*.whl")) else PYPI_TORCH, progress)
    folders = os.environ.get("PIP_FIND_LINKS", "").split()
    if folders:
        with suppress(EnvironmentMissing):
            return _install([*install, *(f"--find-links={folder}" for folder in folders)], CPU_TORCH, progress)
    try:
        return _install([*install, "--torch-backend", "cpu"], CPU_TORCH, progress)
    except EnvironmentMissing as error:
        if TORCH_INDEX not in (error.detail or ""):
            raise
    progress(f"{TORCH_INDEX} cannot be reached; taking torch from PyPI, built for CUDA: 5.9 GB instead of 0.7 GB")
    return _install(install, PYPI_TORCH, progress)


def _install(install: list[str], torch: str, progress: Progress) -> str:
    lock = str(lock_of(EnginePlatform.CPU))
    _run([*install, "--no-deps", torch, "-r", lock, str(RECIPES / "plugin")], progress)
    if torch == PYPI_TORCH:
        # Its libraries of CUDA, without which it cannot be imported on a machine without a GPU either.
        _run([*install, "--constraint", lock, torch], progress)
    return torch


STEPS = ("Resolved", "Downloading", "Downloaded", "Building", "Built", "Prepared", "Installed")
"""How the lines begin in which uv, without a terminal, says how far it is."""


def _run(command: list[str], progress: Progress | None = None) -> None:
    """Run it to its end; `progress` hears how far uv is as it says so."""
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            lines.append(line)
            if progress is not None and (step := line.strip()).startswith(STEPS):
                progress(step)
    if running.returncode != 0:
        said = "".join(lines).strip()
        reason = _reason(said) or f"exit code {running.returncode}"
        hint = TO_THE_FOLDER if "--offline" in command else OTHER_WAYS if "Failed to fetch" in said else None
        raise EnvironmentMissing(f"the engine environment could not be made: {reason}", hint=hint, detail=said)


def _reason(said: str) -> str:
    """What failed and its last cause, which is the first; the last line of a program that does not tell them apart."""
    lines = [line.strip() for line in said.splitlines()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    causes = [line.removeprefix("cause: ") for line in lines if line.startswith("cause: ")]
    return ": ".join(errors[:1] + causes[-1:]).rstrip(".") if errors else (lines or [""])[-1]


@contextmanager
def _only_one(home: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock file next to `home`, which `home` itself, made again, could not keep."""

    def waiting() -> None:
        progress(f"waiting for another process that is making {home}")

    with ExitStack() as held:
        try:
            home.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(file_lock(home.parent / f".{home.name}.lock", waiting))
        except OSError as error:
            raise EnvironmentMissing(
                f"{home.parent} cannot be written ({error.strerror})",
                hint=f"run: sudo install -d -o $(id -un) {home.parent}  (or set {HOME_VARIABLE} to a folder of yours)",
            ) from error
        yield


def _made_for(home: Path) -> EnginePlatform | None:
    """The platform of a complete environment of this tidegate; None when there is none."""
    stamp = _stamped(home)
    return known_digests().get(stamp) if stamp else None


def _stamped(home: Path) -> str | None:
    stamp = home / STAMP
    return stamp.read_text(encoding="ascii") if stamp.exists() else None


def _describe(home: Path, platform: EnginePlatform) -> EngineEnvironment:
    python = home / "bin" / "python"
    site_packages = tuple(str(folder) for folder in (home / "lib").glob("python3.*/site-packages"))
    name = DISTRIBUTION[platform]
    vllm = next(iter(distributions(name=name, path=list(site_packages))), None)
    if vllm is None:
        raise EnvironmentMissing(f"no {name} in {home}", hint=f"remove {home} and {_how_to_make(platform)}")
    return EngineEnvironment(
        python=str(python),
        vllm=vllm.version,
        recipe=_stamped(home) or "",
        platform=platform,
        site_packages=site_packages,
    )


def missing_packages() -> list[str]:
    """The packages that must be installed before a delivery can run on this machine."""
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    present = {
        "prometheus": shutil.which("prometheus") is not None,
        # vLLM compiles the model with g++ against Python's headers, also when it finds the result in its cache.
        "g++": shutil.which("g++") is not None,
        f"{python}-dev": Path(sysconfig.get_path("include"), "Python.h").exists(),
        "libnuma1": ctypes.util.find_library("numa") is not None,
    }
    return [package for package, found in present.items() if not found]


def ensure_system_packages(progress: Progress) -> None:
    """Install what is missing, as root or with a `sudo` that asks for no password.

    Raises:
        OutsideError: something is missing and cannot be installed from here; the hint is the command to run.
    """
    missing = missing_packages()
    if not missing:
        return
    by_hand = f"run: sudo apt-get install -y {' '.join(missing)}"
    apt = _apt()
    if apt is None:
        raise OutsideError(f"{', '.join(missing)} missing on this machine", hint=by_hand)
    progress(f"installing {', '.join(missing)} with apt-get")
    for step in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *missing]):
        done = subprocess.run([*apt, *step], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise OutsideError(f"apt-get could not install {', '.join(missing)}", hint=by_hand, detail=done.stdout)


def _apt() -> list[str] | None:
    """How to call apt-get here without asking a person, or None."""
    if shutil.which("apt-get") is None:
        return None
    environment = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]
    if os.geteuid() == 0:
        return environment
    # -n: a password prompt in the middle of `make` would be met by nobody.
    sudo = shutil.which("sudo")
    if sudo and subprocess.run([sudo, "-n", "true"], capture_output=True, check=False).returncode == 0:
        kept = ",".join(name for name in PROXIES if name in os.environ)
        return [sudo, "-n", *([f"--preserve-env={kept}"] if kept else []), *environment]
    return None
