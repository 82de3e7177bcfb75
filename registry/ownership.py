"""Which deliveries are alive, and which of several processes that would carry one on may do so. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from enum import Enum

from registry.conventions import CLAIM_PREFIX, OWNER
from registry.model import DeliverySummary
from tidegate.core.clock import Clock, Life, Watch
from tidegate.core.model import Value

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
    return watch.life(delivery.id, delivery.heartbeat, now=now, monotonic=monotonic, allowed=allowed)


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


CLAIM_SECONDS = 20.0
"""How long a process tries to carry a delivery on: one that was held up longer gives up, before others (who watch for
`WATCH_SECONDS`) take it for dead."""


class Claim(Value):
    """One process's request to carry a delivery on."""

    mark: str
    """Its own; nobody else has it."""
    made: datetime
    over: str
    """The mark of the owner whom it would replace; empty when there was none."""

    @property
    def tag(self) -> dict[str, str]:
        """As it is written on the run."""
        return {CLAIM_PREFIX + self.mark: f"{self.made.isoformat()} {self.over}"}

    @property
    def withdrawn(self) -> dict[str, str]:
        """What takes its place once it counts no more."""
        return {CLAIM_PREFIX + self.mark: ""}


class Standing(Enum):
    """What a look at the others says of a claim."""

    WON = "won"
    WAITS = "waits"
    LOST = "lost"


def standing(mine: Claim, tags: Mapping[str, str], dead: Collection[Claim]) -> Standing:
    """Where `mine` stands among what is written on the run now; those who made the `dead` claims died."""
    if tags.get(OWNER, "") != mine.over:
        return Standing.LOST
    others = [each for each in claims_in(tags) if each.mark != mine.mark and each.over == mine.over]
    others = [each for each in others if each not in dead]
    if any((each.made, each.mark) < (mine.made, mine.mark) for each in others):
        return Standing.LOST
    return Standing.WAITS if others else Standing.WON


def claims_in(tags: Mapping[str, str]) -> list[Claim]:
    """Those that nobody has withdrawn."""
    written = {key.removeprefix(CLAIM_PREFIX): value for key, value in tags.items() if key.startswith(CLAIM_PREFIX)}
    return [
        Claim(mark=mark, made=datetime.fromisoformat(made), over=over)
        for mark, (made, _, over) in ((mark, value.partition(" ")) for mark, value in written.items() if value)
    ]
