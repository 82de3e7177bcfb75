"""Objects as they change: several watches as one stream of what there is now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from rollouts.kube.model import ChangeKind, Json, Resource
from rollouts.kube.ports import ClusterReader
from tidegate.core.clock import Clock

Objects = tuple[Json, ...]


@dataclass(frozen=True)
class Watched:
    """What to watch."""

    resource: Resource
    labels: str = ""
    fields: str = ""


@dataclass
class _Held:
    """What is known of each watched collection."""

    objects: dict[Resource, dict[str, Json]]
    behind: set[Resource]
    """Those whose first list has not come yet."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def snapshot(self) -> dict[Resource, Objects]:
        return {resource: tuple(found.values()) for resource, found in self.objects.items()}


async def follow(
    cluster: ClusterReader, clock: Clock, watched: Sequence[Watched], *, every_seconds: float
) -> AsyncGenerator[Mapping[Resource, Objects], None]:
    """All there is, first once every collection was listed, then with each change and at least `every_seconds`.

    Changes that come while nobody asks are told together. Raises what the watches raise.
    """
    resources = [each.resource for each in watched]
    held = _Held({resource: {} for resource in resources}, set(resources))
    feeds = [asyncio.create_task(_feed(cluster, each, held)) for each in watched]
    try:
        while True:
            await _change(clock, held, feeds, every_seconds)
            if not held.behind:
                yield held.snapshot()
    finally:
        await _end(feeds)


async def _feed(cluster: ClusterReader, watched: Watched, held: _Held) -> None:
    objects = held.objects[watched.resource]
    async with aclosing(cluster.watch(watched.resource, labels=watched.labels, fields=watched.fields)) as changes:
        async for change in changes:
            match change.kind:
                case ChangeKind.BOOKMARK:
                    continue
                case ChangeKind.SYNCED:
                    held.behind.discard(watched.resource)
                case ChangeKind.DELETED:
                    objects.pop(_key(change.object), None)
                case _:
                    objects[_key(change.object)] = change.object
            held.changed.set()


async def _change(clock: Clock, held: _Held, feeds: Sequence[asyncio.Task[None]], seconds: float) -> None:
    changed, late = asyncio.create_task(held.changed.wait()), asyncio.create_task(clock.sleep(seconds))
    try:
        await asyncio.wait((changed, late, *feeds), return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _end((changed, late))
    held.changed.clear()
    for feed in feeds:
        if feed.done():
            feed.result()


async def _end(tasks: Sequence[asyncio.Task[object]] | Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _key(thing: Json) -> str:
    return f"{thing['metadata'].get('namespace', '')}/{thing['metadata']['name']}"
