"""The compile key of this machine: every factor that decides whether the compiled model may be used again.

vLLM finds out by itself and compiles again, which takes a minute or an hour, and says so in a line among
hundreds. And it does not look at everything: which instructions the CPU has is not in its key.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

NEUTRAL_VARIABLES = frozenset(
    {
        "VLLM_API_KEY",
        "VLLM_ASSETS_CACHE",
        "VLLM_ASSETS_CACHE_MODEL_CLEAN",
        "VLLM_AUDIO_FETCH_TIMEOUT",
        "VLLM_CACHE_ROOT",
        "VLLM_CONFIG_ROOT",
        "VLLM_CPU_KVCACHE_SPACE",
        "VLLM_CPU_MOE_PREPACK",
        "VLLM_CUDA_COMPATIBILITY_PATH",
        "VLLM_DEBUG_DUMP_PATH",
        "VLLM_DEBUG_LOG_API_SERVER_RESPONSE",
        "VLLM_DO_NOT_TRACK",
        "VLLM_DP_MASTER_IP",
        "VLLM_DP_MASTER_PORT",
        "VLLM_ELASTIC_EP_SCALE_UP_LAUNCH",
        "VLLM_ENABLE_CUDA_COMPATIBILITY",
        "VLLM_ENABLE_STARTUP_PLAN",
        "VLLM_ENABLE_V1_MULTIPROCESSING",
        "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS",
        "VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR",
        "VLLM_FLASHINFER_AUTOTUNE_SKIP_OPS",
        "VLLM_FORCE_AOT_LOAD",
        "VLLM_HOST_IP",
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE",
        "VLLM_IMAGE_FETCH_TIMEOUT",
        "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH",
        "VLLM_LOGGING_COLOR",
        "VLLM_LOGGING_CONFIG_PATH",
        "VLLM_LOGGING_LEVEL",
        "VLLM_LOGGING_PREFIX",
        "VLLM_LOGGING_STREAM",
        "VLLM_LOG_STATS_INTERVAL",
        "VLLM_MAX_AUDIO_CLIP_FILESIZE_MB",
        "VLLM_MAX_AUDIO_DECODE_BYTES",
        "VLLM_MAX_AUDIO_DECODE_DURATION_S",
        "VLLM_MAX_AUDIO_PREPROCESS_WORKERS",
        "VLLM_MAX_EMBED_DECODE_BYTES",
        "VLLM_MAX_IMAGE_PIXELS",
        "VLLM_MEDIA_CACHE",
        "VLLM_MEDIA_CACHE_MAX_SIZE_MB",
        "VLLM_MEDIA_CACHE_TTL_HOURS",
        "VLLM_MEDIA_CONNECTOR",
        "VLLM_MEDIA_FETCH_MAX_RETRIES",
        "VLLM_MEDIA_LOADING_THREAD_COUNT",
        "VLLM_MEDIA_URL_ALLOW_REDIRECTS",
        "VLLM_MODEL_REDIRECT_PATH",
        "VLLM_NIXL_SIDE_CHANNEL_HOST",
        "VLLM_NO_USAGE_STATS",
        "VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME",
        "VLLM_PORT",
        "VLLM_RANDOMIZE_DP_DUMMY_INPUTS",
        "VLLM_RINGBUFFER_WARNING_INTERVAL",
        "VLLM_RPC_BASE_PATH",
        "VLLM_SERVER_DEV_MODE",
        "VLLM_SKIP_MODEL_NAME_VALIDATION",
        "VLLM_SKIP_VERSION_SUFFIX",
        "VLLM_TEST_FORCE_LOAD_FORMAT",
        "VLLM_TRITON_JIT_WARMUP_NUM_THREADS",
        "VLLM_TUNED_CONFIG_FOLDER",
        "VLLM_USAGE_STATS_SERVER",
        "VLLM_USE_MODELSCOPE",
        "VLLM_V1_OUTPUT_PROC_CHUNK_SIZE",
        "VLLM_VIDEO_FETCH_TIMEOUT",
        "VLLM_VIDEO_LOADER_BACKEND",
        "VLLM_WORKER_MULTIPROC_METHOD",
        "VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS",
        "VLLM_XLA_CACHE_PATH",
        "VLLM_ZENTORCH_WEIGHT_PREPACK",
    }
)
"""vllm/envs.py, `compile_factors`; a test compares them with the installed one."""

NEUTRAL_ARGUMENTS = frozenset(
    {
        "--api-key",
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

ISA = re.compile(r"avx2|fma|avx512\w*|avx_vnni|amx_\w+|asimd\w*|sve\w*|i8mm|bf16|f16c")
"""CPU flags that compilers of matrix code ask for."""

COMPILER_VARIABLES = ("CXX", "TORCHINDUCTOR_", "TORCHDYNAMO_", "TORCH_COMPILE_", "TRITON_")
"""Beginnings of names besides VLLM_ that change what is compiled."""

COMPILER_NEUTRAL = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS")
"""They say where and how fast, not what."""

PROGRAM_SECONDS = 10.0


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
        "compiler": _first_line([environment.get("CXX", "g++"), "--version"]),
    }
    found |= {"cpu": _cpu()} if on_cpu else {"gpu": _gpu("name"), "driver": _gpu("driver_version"), "cuda": _cuda()}
    return found | {f"env:{name}": value for name, value in environment.items() if changes_what_is_compiled(name)}


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


def changes_what_is_compiled(variable: str) -> bool:
    """Whether an environment variable is part of the key."""
    if variable.startswith("VLLM_"):
        return variable not in NEUTRAL_VARIABLES
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
    # Not `_first_line`: a machine may have several, of several kinds.
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


def _first_line(command: Sequence[str]) -> str:
    return next(iter(_output(command).splitlines()), NOTHING)


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
