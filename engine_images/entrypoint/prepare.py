"""From an image's files to a command that starts vLLM: everything is proven before anything runs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from . import key, manifest, tune, verify, weights
from .exits import BadSettings, OtherMachine
from .journal import Journal
from .manifest import CACHE_FOLDER, MODEL_FOLDER, SIGNATURE_FILE, Engine
from .place import RunFolder
from .settings import ModelSettings, Settings

PACKAGE = Path(__file__).resolve().parent
QUIET_PATHS = "/health,/metrics,/tidegate/ready,/tidegate/health,/tidegate/status"
"""Asked every few seconds; not worth a line in the access log."""

TOKEN_VARIABLE = "TIDEGATE_WEIGHTS_TOKEN"
"""A secret is no option: everybody may read a process's arguments."""


@dataclass(frozen=True)
class Prepared:
    """An engine that is ready to be started."""

    engine: Engine
    command: tuple[str, ...]
    environment: Mapping[str, str]
    status: Mapping[str, object]
    """What is known of it, for `/tidegate/status`."""


def prepare(settings: Settings, run: RunFolder, journal: Journal) -> Prepared:
    """Verify, place into `run`, and tune.

    Raises:
        Exit: whatever is wrong, in one line.
    """
    engine = read(settings, journal)
    model = model_of(settings, engine, journal)
    if engine.cache:
        verify.prove_files(settings.root / CACHE_FOLDER, engine.cache)
    run.link_model(model)
    cache = run.copy_cache(settings.root / CACHE_FOLDER, engine.cache)
    if settings.model_infos is not None:
        run.share_model_infos(settings.model_infos)
    environment = tune.child_environment(
        # vLLM has no use for our secret.
        {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE},
        engine.environment,
        cache=cache,
        packages=PACKAGE.parent,
        threads=_threads(settings),
        allocator=tune.find_allocator(),
    )
    differing = _differences(settings, engine, environment, model, journal)
    return Prepared(
        engine=engine,
        command=_command(settings, engine),
        environment=environment,
        status=_status(settings, engine, differing),
    )


def read(settings: ModelSettings, journal: Journal) -> Engine:
    """What the image's manifest says, once its signature is proven where a key is given.

    Raises:
        Exit: whatever is wrong, in one line.
    """
    content = manifest.read(settings.root)
    # Before a byte of it is believed.
    if settings.public_key is not None:
        verify.prove_signature(settings.public_key, content, settings.root / SIGNATURE_FILE)
    engine = manifest.parse(content)
    journal.info(
        "manifest read",
        engine=engine.digest,
        model=f"{engine.model}:{engine.version}",
        signature="verified" if settings.public_key else "not asked for",
    )
    return engine


def model_of(settings: ModelSettings, engine: Engine, journal: Journal) -> Path:
    """The folder of the model's files, proven: the image's own, or the shared cache's.

    Raises:
        Exit: whatever is wrong, in one line.
    """
    own = settings.root / MODEL_FOLDER
    began = time.monotonic()
    if own.is_dir() and any(own.iterdir()):
        verify.prove_files(own, engine.files)
        journal.info("model verified", files=len(engine.files), seconds=round(time.monotonic() - began, 2))
        return own
    where = settings.weights or engine.source
    if not where:
        raise BadSettings(f"{own} is empty, and neither the manifest nor --weights says where the weights are")
    source = weights.Source(where, token=os.environ.get(TOKEN_VARIABLE))
    return weights.ensure(settings.weights_cache, engine.model_digest, engine.files, source, journal)


def _differences(
    settings: Settings, engine: Engine, environment: Mapping[str, str], model: Path, journal: Journal
) -> list[str]:
    """Where this machine differs from the one that compiled, each said aloud.

    Raises:
        OtherMachine: there are some, and the policy is to refuse.
    """
    if not engine.factors:
        return []
    here = key.factors([*engine.arguments, *settings.vllm], environment, model)
    differing = key.differences(engine.factors, here)
    for difference in differing:
        journal.warning("the compile key differs", factor=difference, consequence="vLLM compiles anew, or runs slower")
    if differing and settings.key_policy == "refuse":
        raise OtherMachine(f"compiled for another machine: {'; '.join(differing)}")
    if not differing:
        journal.info("the compile key is this machine's", factors=len(engine.factors))
    return differing


def _threads(settings: Settings) -> int | None:
    """For computing; None where the operator set them, or where a GPU computes."""
    if settings.threads is not None:
        return settings.threads
    if "OMP_NUM_THREADS" in os.environ or not key.computes_on_cpu():
        return None
    return tune.usable_cores()


def _command(settings: Settings, engine: Engine) -> tuple[str, ...]:
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
    gate = ["--middleware", f"{PACKAGE.name}.gate.Gate"]
    return (sys.executable, "-m", settings.server, *theirs, *chain.from_iterable(ours.items()), *gate)


def without(names: Container[str], arguments: Iterable[str]) -> Iterator[str]:
    """The arguments that are not of these names, whichever way their values are written."""
    dropping = False
    for part in arguments:
        if part.startswith("--"):
            dropping = part.partition("=")[0] in names
        if not dropping:
            yield part


def _status(settings: Settings, engine: Engine, differing: list[str]) -> dict[str, object]:
    return {
        "engine": engine.digest,
        "model": {"name": engine.model, "version": engine.version, "digest": engine.model_digest},
        "signature": "verified" if settings.public_key else "not asked for",
        "compile_key": {
            "compiled": bool(engine.factors),
            "policy": settings.key_policy,
            "differences": differing,
        },
    }
