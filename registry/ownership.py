"""Which deliveries are alive, and which of several processes that would carry one may do so. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from uuid import uuid4

from pydantic import Field

from registry.conventions import (
    CARRIER,
    CHAMPION,
    HEARTBEAT,
    IN_PRODUCTION,
    LAST_STEP,
    MODEL,
    NOT_ENDED,
    ON_TRIAL,
    OUTCOME,
    OWNER_PREFIX,
    REASON,
    VERSION,
)
from registry.errors import LedgerForged
from registry.model import DeliverySummary, StoredRun
from tidegate.core.clock import Clock, Life, Watch
from tidegate.core.model import Value
from tidegate.core.text import foreign

LIVE_SECONDS = 60.0
"""A delivery whose heartbeat is older looks dead. A process beats every 10 s, and with every event."""


def life_of(
    delivery: DeliverySummary,
    watch: Watch,
    clock: Clock,
    *,
    machine: str,
    process_exists: Callable[[int], bool],
) -> Life:
    """Whether an unfinished delivery's process may still act.

    The process table that knows its number tells at once; elsewhere only heartbeats do. Of a delivery that many
    processes carry the last may well be gone and the next not there yet: it is given the time it asked for.

    Args:
        delivery: has not ended.
        watch: of this process, which notes this look.
        clock: of this machine.
        machine: as `DeliverySummary.machine`, of this process.
        process_exists: of this machine.
    """
    if not delivery.patience_seconds and delivery.machine == machine and not process_exists(delivery.pid):
        return Life.DEAD
    allowed = delivery.patience_seconds or LIVE_SECONDS
    now, monotonic = clock.now(), clock.monotonic()
    # The silence of one is not that of those whom it replaced.
    sender = f"{delivery.id} {delivery.owner}"
    return watch.life(sender, delivery.heartbeat, now=now, monotonic=monotonic, allowed=allowed)


def why_dead(delivery: DeliverySummary) -> str:
    """The reason to write when a dead delivery is closed."""
    if delivery.patience_seconds:
        return f"nobody went on with it; its last sign of life was {delivery.heartbeat:%F %T} UTC"
    return f"process {delivery.pid} on {delivery.host} died; its last sign of life was {delivery.heartbeat:%F %T} UTC"


def contest(mine: DeliverySummary, others: Iterable[tuple[DeliverySummary, bool]]) -> DeliverySummary | None:
    """The delivery that `mine` must make way for now; None when it need not.

    `others` are the live deliveries with whether each has won its own contest already. Everyone writes first
    and looks second, so of two at least the later one sees the other. The younger always makes way; the older
    makes way only for a winner, and otherwise waits until the younger has withdrawn or won.
    """
    for other, has_won in others:
        if has_won or _age(other) < _age(mine):
            return other
    return None


def _age(delivery: DeliverySummary) -> tuple[datetime, str]:
    return delivery.started, delivery.id


class Carrier(Value):
    """The process that carries a delivery, as a tag or a parameter of its run says: the first one to set it."""

    mark: str = Field(default_factory=lambda: uuid4().hex)
    """Its own; nobody else has it."""
    at: datetime
    host: str
    pid: int = Field(gt=0, lt=2**31)
    machine: str
    """As `DeliverySummary.machine`."""
    patience_seconds: float = Field(default=0.0, ge=0, le=366 * 86400.0)
    key: str | None = None


def claims_of(run: StoredRun) -> list[str]:
    """What those wrote who carried a delivery on, in their order."""
    return [run.params[key] for key in sorted(run.params) if key.startswith(OWNER_PREFIX)]


def owner_of(run: StoredRun) -> str:
    """The mark of the one who carries a delivery by its run.

    Raises:
        LedgerForged: somebody else wrote there.
    """
    with foreign(lambda why: LedgerForged(f"who carries delivery {run.id} cannot be read: {why}")):
        return _carrier(run).mark


def _carrier(run: StoredRun) -> Carrier:
    return Carrier.model_validate_json([run.tags[CARRIER], *claims_of(run)][-1])


def summary_of(run: StoredRun) -> DeliverySummary:
    """What a delivery's run says of it.

    Raises:
        LedgerForged: it is none of a delivery. Anybody who may write to MLflow may write anything there.
    """
    hint = "no command of tidegate wrote it so; see the run in MLflow, and who may write there"
    with foreign(lambda why: LedgerForged(f"run {run.id} cannot be read as a delivery: {why}", hint=hint)):
        tags, carrier = run.tags, _carrier(run)
        heartbeat = datetime.fromisoformat(tags[HEARTBEAT])
        if heartbeat.tzinfo is None:
            raise ValueError(f"{HEARTBEAT}: found a time without a zone")
        ended = run.ended if run.status != NOT_ENDED else None
        return DeliverySummary(
            id=run.id,
            name=tags[MODEL],
            version=tags[VERSION],
            champion=tags.get(CHAMPION),
            on_trial=tags.get(ON_TRIAL, ""),
            in_production=tags.get(IN_PRODUCTION, ""),
            started=datetime.fromtimestamp(run.started / 1000, UTC),
            ended=datetime.fromtimestamp(ended / 1000, UTC) if ended else None,
            outcome=tags.get(OUTCOME),
            reason=tags.get(REASON),
            last_step=tags.get(LAST_STEP),
            heartbeat=max(heartbeat, carrier.at),
            owner=carrier.mark,
            **carrier.model_dump(include={"host", "pid", "machine", "patience_seconds", "key"}),
        )
