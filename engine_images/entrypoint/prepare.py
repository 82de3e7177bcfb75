"""From the options and an image's files to the command and environment that start vLLM: all is proven before it runs.

Options are not read from the environment: Kubernetes writes variables of its own for every service. What the manifest
says of vLLM's environment holds, unless the operator set the variable in the container: then the operator's counts, and
the compile key says which variable that was.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from . import BEGAN, compile_key, manifest, weights
from .channel import GateSettings
from .journal import BadSettings, EventLog
from .manifest import CACHE_FOLDER, MODEL_FOLDER, SIGNATURE_FILE, ServedEngine
from .runtime_directory import RuntimeDirectory, compiled_files

VLLM = "vllm.entrypoints.launchers.api_server.entry"
"""vLLM's server, as a module of this Python, so that nothing depends on PATH."""


class Settings(argparse.Namespace):
    """What an operator may say of one engine; `pull` takes where it is, who signed it, where its weights come from."""

    root: Path
    public_key: Path | None
    weights: str | None
    weights_cache: Path
    logs: str
    run: Path
    host: str
    port: int
    grace: float | None
    linger: float
    start_deadline: float
    health_every: float
    health_deadline: float
    threads: int | None
    model_infos: Path | None
    samples: Path | None
    known_as: str | None
    spot: str
    spot_url: str | None
    server: str
    vllm: list[str]
    """Arguments for vLLM besides the manifest's."""


def absolute_path(text: str) -> Path:
    """A path that means the same in the folder that vLLM starts in."""
    return Path(text).absolute()


def add_model(parser: argparse.ArgumentParser) -> None:
    """The options that `serve` and `pull` share."""
    option = parser.add_argument
    option(
        "--root", type=absolute_path, default=Path("/engine"), help="where the image holds manifest, cache and model"
    )
    option("--public-key", type=absolute_path, help="PEM; the manifest must be signed by it")
    option("--weights", help="where the model's files come from, when not from where the manifest says")
    option("--weights-cache", type=absolute_path, default=Path("/var/cache/tidegate"), help="folder shared by engines")
    option("--logs", choices=["json", "text"], default="json")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Every option of `serve`."""
    add_model(parser)
    option = parser.add_argument
    run = Path("/tmp/tidegate-engine")
    option("--run", type=absolute_path, default=run, help="folder of this engine alone, writable")
    option("--host", default="0.0.0.0", help="address to listen on")
    option("--port", type=int, default=8000)
    option("--grace", type=float, help="seconds for open answers at the end; else the manifest's")
    option("--linger", type=float, default=0.0, help="seconds of the grace in which new requests are still taken")
    option("--start-deadline", type=float, default=1800.0, help="seconds until the engine must be ready")
    option("--health-every", type=float, default=10.0, help="seconds for which a proof of health holds")
    option("--health-deadline", type=float, default=10.0, help="seconds for one test inference")
    option("--model-infos", type=Path, help="folder shared by engines: what vLLM has found out about model classes")
    option("--samples", type=absolute_path, help="file in which a delivery says what to keep of users' requests")
    option("--known-as", help="by what name that file knows this engine; else its model version")
    option("--threads", type=int, help="for computing on a CPU; else the cores that this container may use")
    option("--spot", choices=["off", "aws", "gcp"], default="off", help="watch for the cloud's notice and drain then")
    option("--spot-url", help=argparse.SUPPRESS)
    option("--server", default=VLLM, help=argparse.SUPPRESS)
    option("vllm", nargs="*", help="arguments for vLLM, behind --")


ARENAS = "4"
"""Of glibc's malloc: its default of eight a core holds on to freed memory."""

GPU_CACHES = {"TRITON_CACHE_DIR": "triton", "FLASHINFER_WORKSPACE_BASE": "flashinfer", "CUDA_CACHE_PATH": "cuda"}
"""Where compilers of kernels besides inductor keep them, as folders of the compile cache: so they are kept with it."""

CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def child_environment(
    inherited: Mapping[str, str],
    manifest: Mapping[str, str],
    *,
    cache: Path,
    packages: Path,
    threads: int | None,
    on_cpu: bool = True,
) -> dict[str, str]:
    """What vLLM's process sees.

    Args:
        inherited: our own environment.
        manifest: the environment that the engine was built with.
        cache: the compile cache, writable.
        packages: the folder that holds this package, for the middleware.
        threads: for computing on a CPU; None leaves them to vLLM.
        on_cpu: whether nothing is compiled for a GPU, whose compilers keep what they made below the home otherwise.
    """
    merged = {**manifest, **inherited}
    tuned = {"OMP_WAIT_POLICY": "passive", "MALLOC_ARENA_MAX": ARENAS}
    if not on_cpu:
        tuned |= {name: str(cache / folder) for name, folder in GPU_CACHES.items()}
    if threads is not None:
        merged["OMP_NUM_THREADS"] = str(threads)
    path = [str(packages), *filter(None, [inherited.get("PYTHONPATH")])]
    placed = {
        compile_key.CACHE_VARIABLE: str(cache),
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
        # The folder that vLLM starts in holds files of a model version: never import from there.
        "PYTHONSAFEPATH": "1",
    }
    return {**tuned, **merged, **placed}


def usable_cores(quota: Path = CGROUP_QUOTA) -> int:
    """Cores that this process may use: its affinity and its container's limit."""
    cores = len(os.sched_getaffinity(0))
    try:
        allowed, period = quota.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return cores
    return cores if allowed == "max" else max(1, min(cores, math.floor(int(allowed) / int(period))))


PACKAGE = Path(__file__).resolve().parent
QUIET_PATHS = ",".join(
    ("/health", "/metrics", *(f"/tidegate/{path}" for path in ("ready", "health", "status", "samples", "samples/end")))
)
"""Asked every few seconds; not worth a line in the access log."""

EAGER = "--enforce-eager"
"""Of vLLM: nothing is compiled, whatever a cache holds."""

TOKEN_VARIABLE = "TIDEGATE_WEIGHTS_TOKEN"
"""A secret is no option: everybody may read a process's arguments."""


@dataclass(frozen=True)
class PreparedEngine:
    """An engine that is ready to be started."""

    engine: ServedEngine
    command: tuple[str, ...]
    environment: Mapping[str, str]
    gate: GateSettings
    """All but its channel, and when vLLM was started."""


def prepare(settings: Settings, run: RuntimeDirectory, journal: EventLog) -> PreparedEngine:
    """Verify, place into `run`, and tune.

    Raises:
        Exit: whatever is wrong, in one line.
    """
    engine = read(settings, journal)
    model = model_of(settings, engine, journal)
    if engine.cache:
        manifest.prove_files(settings.root / CACHE_FOLDER, engine.cache)
    run.link_model(model)
    cache = run.copy_cache(settings.root / CACHE_FOLDER, engine.cache)
    if settings.model_infos is not None:
        run.share_model_infos(settings.model_infos)
    # vLLM has no use for our secret.
    inherited = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
    environment = child_environment(
        inherited,
        engine.environment,
        cache=cache,
        packages=PACKAGE.parent,
        threads=_threads(settings),
        on_cpu=compile_key.computes_on_cpu(),
    )
    differing = _differences(engine, [*engine.arguments, *settings.vllm], environment, model, journal)
    command = _command(settings, engine)
    eager = EAGER in command
    gate = GateSettings(
        warm_up=engine.warm_up,
        warm_up_seconds=settings.start_deadline,
        health_every_seconds=settings.health_every,
        health_within_seconds=settings.health_deadline,
        json_logs=settings.logs == "json",
        engine={
            "engine": engine.digest,
            "model": {"name": engine.model, "version": engine.version, "digest": engine.model_digest},
            "signature": "verified" if settings.public_key else "not asked for",
            "compile_key": {"compiled": bool(engine.factors), "differences": differing},
        },
        version=settings.known_as or engine.version,
        began=BEGAN,
        cache=None if eager else str(cache),
        compiled_files=0 if eager else compiled_files(cache),
        samples=str(settings.samples) if settings.samples else None,
    )
    return PreparedEngine(engine=engine, command=command, environment=environment, gate=gate)


def read(settings: Settings, journal: EventLog) -> ServedEngine:
    """What the image's manifest says, once its signature is proven where a key is given.

    Raises:
        Exit: whatever is wrong, in one line.
    """
    content = manifest.read(settings.root)
    # Before a byte of it is believed.
    if settings.public_key is not None:
        manifest.prove_signature(settings.public_key, content, settings.root / SIGNATURE_FILE)
    engine = manifest.parse(content)
    journal.info(
        "manifest read",
        engine=engine.digest,
        model=f"{engine.model}:{engine.version}",
        signature="verified" if settings.public_key else "not asked for",
    )
    return engine


def model_of(settings: Settings, engine: ServedEngine, journal: EventLog) -> Path:
    """The folder of the model's files, proven: the image's own, or the shared cache's.

    Raises:
        Exit: whatever is wrong, in one line.
    """
    own = settings.root / MODEL_FOLDER
    began = time.monotonic()
    if own.is_dir() and any(own.iterdir()):
        manifest.prove_files(own, engine.files)
        journal.info("model verified", files=len(engine.files), seconds=round(time.monotonic() - began, 2))
        return own
    places = [settings.weights] if settings.weights else engine.source.split()
    if not places:
        raise BadSettings(f"{own} is empty, and neither the manifest nor --weights says where the weights are")
    token = os.environ.get(TOKEN_VARIABLE)
    sources = [weights.Source(place, token=token) for place in places]
    return weights.ensure(settings.weights_cache, engine.model_digest, engine.files, sources, journal)


def _differences(
    engine: ServedEngine, arguments: Sequence[str], environment: Mapping[str, str], model: Path, journal: EventLog
) -> list[str]:
    """Where this machine differs from the one that compiled, each said aloud."""
    if not engine.factors:
        return []
    differing = compile_key.differences(engine.factors, compile_key.factors(arguments, environment, model))
    for difference in differing:
        journal.warning("the compile key differs", factor=difference, consequence="vLLM compiles again, or runs slower")
    if not differing:
        journal.info("the compile key is this machine's", factors=len(engine.factors))
    return differing


def _threads(settings: Settings) -> int | None:
    """For computing; None where the operator set them, or where a GPU computes."""
    if settings.threads is not None:
        return settings.threads
    if "OMP_NUM_THREADS" in os.environ or not compile_key.computes_on_cpu():
        return None
    return usable_cores()


def _command(settings: Settings, engine: ServedEngine) -> tuple[str, ...]:
    ours = {
        "--host": settings.host,
        "--port": str(settings.port),
        # The gate drains. What is left after that is to be dropped, not waited for.
        "--shutdown-timeout": "0",
        "--disable-access-log-for-endpoints": QUIET_PATHS,
    }
    if settings.logs == "json":
        ours["--logging-config.formatter"] = "json"
    theirs = without(ours.keys(), [*engine.arguments, *settings.vllm])
    gate = ["--middleware", f"{PACKAGE.name}.gate.EngineGate"]
    return (sys.executable, "-m", settings.server, *theirs, *chain.from_iterable(ours.items()), *gate)


def without(names: Container[str], arguments: Iterable[str]) -> Iterator[str]:
    """The arguments that are not of these names, whichever way their values are written."""
    dropping = False
    for part in arguments:
        if part.startswith("--"):
            dropping = part.partition("=")[0] in names
        if not dropping:
            yield part
