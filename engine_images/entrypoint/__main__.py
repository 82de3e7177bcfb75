"""Start or describe an engine.

In an image (and on a machine, with `--root` and `--run` of its own), on the engine environment's Python:

    PYTHONPATH=/engine/entrypoint PYTHONSAFEPATH=1 python -m tidegate_entrypoint serve \
        --root /engine --host 0.0.0.0 --port 8000 --run /tmp/tidegate-engine --weights-cache /var/cache/tidegate

`/engine/entrypoint/tidegate_entrypoint` is a copy of this folder; `/engine/manifest.json` says what is served.
The engine is ready when `GET /tidegate/ready` is 200: before, it answers requests with 503. SIGTERM drains and
ends it; a second SIGTERM cuts what is open.

    serve    verify, place, tune, start vLLM, watch it: the process to start
    pull     bring the weights that the image has not, proven, and end: for an init container
    key      print the factors of the compile key of this machine for the engine at `--root`, as JSON

`serve --help` names every option. Exit codes are in `journal`. vLLM's own arguments come from the manifest; what
stands behind `--` is added to them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from . import compile_key, manifest
from .journal import ENDED, EventLog, Exit
from .prepare import Settings, add_model, add_options, model_of, prepare, read
from .runtime_directory import RuntimeDirectory
from .supervisor import Supervisor, require_free


def main(arguments: Sequence[str]) -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(prog="tidegate_entrypoint", description="Start or describe an engine.")
    commands = parser.add_subparsers(dest="command", required=True)
    add_options(commands.add_parser("serve", help="verify, place, tune, start vLLM and watch it"))
    add_model(commands.add_parser("pull", help="bring the weights that the image has not, proven, and end"))
    described = commands.add_parser("key", help="print the compile key's factors of this machine as JSON")
    described.add_argument("--root", type=Path, default=Path("/engine"))
    parsed = parser.parse_args(arguments, Settings())
    if parsed.command == "serve":
        return _as_process_1(parsed, _serve)
    if parsed.command == "pull":
        return _as_process_1(parsed, _pull)
    return describe(parsed.root)


def _as_process_1(settings: Settings, work: Callable[[Settings, EventLog], int]) -> int:
    """The last line of the log says how it ended."""
    journal = EventLog(as_json=settings.logs == "json")
    for number in (signal.SIGTERM, signal.SIGINT):
        # Process 1 gets no signal that it has not asked for.
        signal.signal(number, lambda *_: _leave(journal))
    code = 1
    try:
        code, reason = work(settings, journal), None
    except Exit as error:
        code, reason = error.code, str(error)
    if reason is None:
        journal.info("ended", code=code)
    else:
        journal.error("ended", code=code, reason=reason)
    return code


def _pull(settings: Settings, journal: EventLog) -> int:
    """What an init container does, so that no engine may write where all read."""
    model_of(settings, read(settings, journal), journal)
    return ENDED


def _serve(settings: Settings, journal: EventLog) -> int:
    require_free(settings.host, settings.port)
    with RuntimeDirectory(settings.run) as run:
        prepared = prepare(settings, run, journal)
        return asyncio.run(Supervisor(prepared, settings, run, journal).run())


def describe(root: Path) -> int:
    """Print this machine's factors for the engine at `root`, as they are compared at start."""
    engine = manifest.parse(manifest.read(root))
    environment = {**engine.environment, **os.environ}
    print(json.dumps(compile_key.factors(engine.arguments, environment, root / manifest.MODEL_FOLDER), indent=2))
    return ENDED


def _leave(journal: EventLog) -> None:
    """Told to end before vLLM was started: nothing is open, and what is half pulled is continued next time."""
    journal.info("ended", code=ENDED, by="a signal, before vLLM was started")
    os._exit(ENDED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
