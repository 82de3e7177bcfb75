"""`tidegate traffic`: plays the users of every region."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from pathlib import Path

from gates.adapters.load import LoadProcess, start_load
from gates.drift.features import Feature
from pipelines.spec import Delivery
from pipelines.state import StateFolder
from rollouts.adapters.host_client import FleetHost, attach
from tidegate.cli.compose import on_this_machine, read_delivery
from tidegate.cli.output import note
from tidegate.core.errors import OutsideError, UsageError

CHECK_SECONDS = 1.0


def run(spec_path: Path, state: Path, *, seconds: float | None) -> int:
    """Until Ctrl-C or for `seconds`; then say what became of every request."""
    return asyncio.run(_play(read_delivery(spec_path), spec_path.parent, StateFolder(state), seconds))


async def _play(spec: Delivery, folder: Path, state: StateFolder, seconds: float | None) -> int:
    on_this_machine(spec)
    host = await attach(state.root)
    if host is None:
        raise OutsideError("no fleet runs here", hint="start it with `tidegate fleet up`")
    load = start_users(spec, folder, state, host)
    note(f"users of {', '.join(spec.regions.names)}; Ctrl-C ends it")
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await _until(stopped, load, seconds)
    totals = await load.stop()
    print(f"{totals.failed} of {totals.requests} requests failed, {totals.cut} were cut")
    return 0


async def _until(stopped: asyncio.Event, load: LoadProcess, seconds: float | None) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not stopped.is_set():
                load.check()
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopped.wait(), CHECK_SECONDS)


def start_users(spec: Delivery, folder: Path, state: StateFolder, host: FleetHost) -> LoadProcess:
    """The load that the spec describes, against the entries of every region.

    Raises:
        UsageError: when the spec has no users' prompts.
    """
    if spec.traffic is None or spec.traffic.prompts is None:
        raise UsageError("the spec does not say what users ask", hint="set traffic.prompts")
    prompts, records = folder / spec.traffic.prompts, state.traffic / f"{spec.metadata.name}.jsonl"
    _freeze_topics(spec, prompts, records)
    return start_load(
        host.regions(),
        rate=spec.traffic.requests_per_second,
        prompts=prompts,
        model=spec.metadata.name,
        max_tokens=spec.traffic.max_tokens,
        regenerate=spec.traffic.regenerate,
        records=records,
    )


def _freeze_topics(spec: Delivery, prompts: Path, records: Path) -> None:
    """Find topics in what users are known to ask, once, when the drift gate is to look at them."""
    drift = spec.gates.drift
    if drift is None or drift.inputs is None or Feature.TOPIC not in drift.inputs.features:
        return
    from gates.adapters.embeddings import WordEmbeddings
    from gates.adapters.prompts import read_prompts
    from gates.adapters.topics import fit_topics, topics_file

    path = topics_file(records)
    if path.exists():
        return
    topics = fit_topics(WordEmbeddings(), read_prompts(prompts))
    if topics is None:
        raise UsageError(f"{prompts} has too few prompts to find topics in", hint="leave topic out of drift.inputs")
    path.parent.mkdir(parents=True, exist_ok=True)
    topics.save(path)
