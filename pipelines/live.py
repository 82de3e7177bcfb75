"""Evidence of live traffic: who counts for which gate, in windows that touch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gates.burn.spec import BurnRateGate
from gates.drift.bins import Reference, freeze_reference
from gates.drift.features import features_of_record
from gates.enriched import WithDrift, WithEvents
from gates.evidence import Batch
from gates.model import ArmKey, NoData, Verdict
from gates.ports import EvidenceSource
from gates.spec import Gates
from gates.terms import Source, Terms, terms_of
from pipelines.budget import shares
from pipelines.context import Context
from pipelines.trials import RecordedTrial
from tidegate.core.beside import beside


@dataclass
class Feed:
    """One source of one comparison; every request ends in exactly one of its windows."""

    source: EvidenceSource
    stable: ArmKey
    canary: ArmKey
    since: datetime
    """Where the next window begins."""
    look: timedelta
    """How long a window is at least."""

    def next(self, now: datetime, *, final: bool) -> Batch | None:
        """The next window, once it is long enough and everything in it is known; the last one may be shorter."""
        until = now - self.source.settles_within
        length = until - self.since
        if length < self.look and not (final and length > timedelta(0)):
            return None
        batch = self.source.batch(self.stable, self.canary, self.since, until)
        self.since = until
        return batch


def live_feeds(
    context: Context,
    arms: tuple[ArmKey, ArmKey],
    *,
    users: bool = True,
    reference: Reference | NoData | None = None,
    burn: BurnRateGate | None = None,
) -> list[Feed]:
    """The proxies and, when somebody writes down what users see, the users; with what the gates ask beyond counts."""
    proxy, seen = context.proxy, context.users if users else None
    if burn and burn.errors_query and context.events:
        proxy = WithEvents(proxy, context.events, burn)
    if seen and context.requests and isinstance(reference, Reference):
        seen = WithDrift(seen, context.requests, reference)
    now, look = context.clock.now(), context.spec.look
    return [Feed(source, *arms, now, look) for source in (proxy, seen) if source is not None]


def drift_reference(context: Context, stable: ArmKey) -> Reference | NoData:
    """What users asked stable, and how it answered, before the canary got any of them."""
    drift = context.spec.gates.drift
    if drift is None or context.requests is None:
        return NoData(reason="nobody writes down what users ask")
    now = context.clock.now()
    found = context.requests.window(stable, now - drift.reference, now)
    return freeze_reference(drift, (features_of_record(record) for record in found))


def counters(context: Context, *, users: bool = True) -> Mapping[str, tuple[Source, ...]]:
    """Who counts for which gate: of times users know best; of failures each sees some that the other does not."""
    if users and context.users is not None:
        return {"latency": ("users",), "errors": ("proxy", "users")}
    return {"latency": ("proxy",), "errors": ("proxy",)}


def terms_for(
    context: Context,
    trial: str,
    asked: Iterable[str],
    sources: Mapping[str, tuple[Source, ...]],
    *,
    gates: Gates | None = None,
    mirrored: float | None = None,
    reference: Reference | NoData | None = None,
) -> Terms:
    """The terms of one trial, with its share of the delivery's budget; `gates` are its stage's where it has some."""
    share = shares(context.spec)[trial]
    gates = gates or context.spec.gates
    return terms_of(gates, asked, sources=sources, share=share, mirrored=mirrored, reference=reference)


async def take_new(trial: RecordedTrial, feeds: Sequence[Feed], now: datetime, *, final: bool) -> None:
    """Take what is new from every feed."""
    for feed in feeds:
        # In threads: reading Prometheus and record files would hold up everything else of the delivery.
        batch = await beside(feed.next, now, final=final)
        if batch is not None:
            trial.take(batch)


async def look(trial: RecordedTrial, feeds: Sequence[Feed], now: datetime, *, final: bool) -> Sequence[Verdict]:
    """Take what is new, and ask all gates."""
    await take_new(trial, feeds, now, final=final)
    return trial.verdicts(deadline_passed=final)
