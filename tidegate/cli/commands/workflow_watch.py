"""`tidegate workflow watch`: a workflow, step by step, to its end."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

from pipelines.workflow.seen import Seen, news, seen
from rollouts.adapters.kube.client import KubeClient
from rollouts.adapters.kube.connect import connect
from rollouts.kube.model import ChangeKind
from rollouts.kube.resources import WORKFLOWS
from tidegate.cli.commands.workflow_render import drawn
from tidegate.core.clock import SystemClock
from tidegate.core.errors import OutsideError, UsageError


def run(name: str, spec_path: Path, context: str | None, *, as_json: bool) -> int:
    """Tell what changes; returns the exit code of the delivery."""
    return asyncio.run(_watch(name, drawn(spec_path).namespace, context, as_json=as_json))


async def _watch(name: str, namespace: str, context: str | None, *, as_json: bool) -> int:
    client = connect(context, clock=SystemClock(), namespace=namespace)
    try:
        return await _follow(client, name, as_json=as_json)
    finally:
        await client.close()


async def _follow(client: KubeClient, name: str, *, as_json: bool) -> int:
    last: Seen | None = None
    async with aclosing(client.watch(WORKFLOWS, fields=f"metadata.name={name}")) as changes:
        async for change in changes:
            if change.kind is ChangeKind.DELETED:
                raise OutsideError(f"workflow {name} was deleted", hint="its delivery's ledger says how far it came")
            if change.kind is ChangeKind.SYNCED and last is None:
                raise UsageError(f"there is no workflow {name} here")
            if change.kind not in (ChangeKind.ADDED, ChangeKind.MODIFIED):
                continue
            now = seen(change.object)
            _tell(last, now, as_json=as_json)
            last = now
            if now.over:
                return int(now.exit_code)
    raise OutsideError(f"nothing more is heard of workflow {name}")


def _tell(last: Seen | None, now: Seen, *, as_json: bool) -> None:
    if not as_json:
        for line in news(last, now):
            print(line, flush=True)
    elif now != last:
        print(now.model_dump_json(), flush=True)
