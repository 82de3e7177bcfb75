"""The one writer of a delivery's ledger: a queue, and a thread that empties it in order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any, TypeVar

from pipelines.events.spool import Entry, EventEntry, FileEntry, Spool, passes, write_entry
from pipelines.ports import Ledger
from pipelines.spec.sections import PatienceSpec
from tidegate.core.clock import Clock
from tidegate.core.errors import TidegateError

if TYPE_CHECKING:
    from registry.versions import MlflowRegistry

HOLD_SECONDS = 1.0
"""At most: then the queue moves again, whether or not anybody let it go."""

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class WriterLimits:
    """How patient a delivery is with its ledger, in seconds."""

    call: float = 10.0
    """After which a call that has not answered counts as silence."""
    patience: float = 600.0
    """Of silence, until a delivery gives up that must know that an event is durable."""
    end: float = 30.0
    """Of silence, until a delivery that is over ends its process and leaves the rest to the next one."""
    pauses: tuple[float, ...] = (0.5, 1.0, 2.0, 5.0)
    """Between two attempts, the last one again and again."""


def limits_of(patience: PatienceSpec) -> WriterLimits:
    """What a spec says."""
    return WriterLimits(
        call=patience.call.total_seconds(),
        patience=patience.registry.total_seconds(),
        end=patience.end.total_seconds(),
    )


@dataclass(frozen=True)
class StoreSilence:
    """The store does not answer."""

    since: float
    """By the delivery's clock."""
    reason: str


@dataclass
class _Waiting:
    entry: Entry
    durable: Future[None]
    again: bool
    """Whether an attempt was made whose answer is not known."""


class Writer:
    """Writes entries in the order in which they come, each exactly once. Its calls are safe from any thread."""

    def __init__(
        self,
        ledger: Ledger,
        registry: MlflowRegistry | None,
        clock: Clock,
        *,
        spool: Spool | None,
        limits: WriterLimits,
    ) -> None:
        """What `spool` holds is of a process before this one, and is written first."""
        self._ledger, self._registry = ledger, registry
        self._clock, self._spool, self._limits = clock, spool, limits
        self._changed = Condition()
        left = spool.left() if spool else ()
        self._queue = deque(_Waiting(entry, Future(), again=True) for entry in left)
        self._asked: deque[Callable[[], None]] = deque()
        self._works = self._has_ended = False
        self._not_before = 0.0
        self._failures = 0
        self._busy_since: float | None = None
        self._silence: StoreSilence | None = None
        self.refusal: TidegateError | None = None
        """Why the store takes no events any more: a delivery that others closed hears of it so."""

    @property
    def silence(self) -> StoreSilence | None:
        """Since when the store has not answered; None while it does, and while nothing is asked of it."""
        return self._silence

    @property
    def left(self) -> int:
        """How many entries are not written."""
        with self._changed:
            return len(self._queue)

    def put(self, entry: Entry) -> Future[None]:
        """Take it, and return at once; the future is done when it is durable."""
        waiting = _Waiting(entry, Future(), again=False)
        with self._changed:
            self._queue.append(waiting)
            if self._spool:
                self._spool.add(entry)
            self._work()
        return waiting.durable

    def drained(self) -> Future[None]:
        """Done when everything that is in the queue now is written, or refused."""
        over: Future[None] = Future()
        with self._changed:
            last = self._queue[-1].durable if self._queue else None
        if last is None:
            over.set_result(None)
        else:
            last.add_done_callback(lambda _: over.set_result(None))
        return over

    def ask(self, call: Callable[[], Answer]) -> Future[Answer]:
        """Let the thread that has the ledger call this, before whatever waits in the queue."""
        answer: Future[Answer] = Future()
        with self._changed:
            self._asked.append(lambda: _settle(answer, call))
            self._work()
        return answer

    def hold(self) -> None:
        """Begin nothing more for a moment: users go first."""
        with self._changed:
            self._not_before = max(self._not_before, time.monotonic() + HOLD_SECONDS)

    def release(self) -> None:
        """Go on at once."""
        with self._changed:
            self._not_before = 0.0
            self._changed.notify()

    def overdue(self) -> None:
        """Somebody waited for as long as a call may take: that is silence too."""
        with self._changed:
            if self._silence is None and self._works:
                since = self._clock.monotonic() if self._busy_since is None else self._busy_since
                self._silence = StoreSilence(since, f"no answer within {self._limits.call:g} s")

    def end(self) -> None:
        """Begin nothing more, and let go of the disk. What is not written stays there."""
        with self._changed:
            self._has_ended = True
            self._changed.notify()
            if self._spool:
                self._spool.end()

    def _work(self) -> None:
        if not self._works:
            self._works = True
            # A daemon: a store that never answers must not keep the process alive.
            Thread(target=self._run, name=f"ledger of {self._ledger.delivery}", daemon=True).start()
        self._changed.notify()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            job()

    def _next(self) -> Callable[[], None] | None:
        """What is to be done now; None when nothing is left, and the thread's work with it."""
        with self._changed:
            while not self._has_ended:
                if self._asked:
                    return self._asked.popleft()
                if not self._queue:
                    self._works, self._silence = False, None
                    return None
                pause = self._not_before - time.monotonic()
                if pause <= 0:
                    self._busy_since = self._clock.monotonic()
                    return self._write_first
                self._changed.wait(pause)
            return None

    def _write_first(self) -> None:
        waiting = self._queue[0]
        try:
            write_entry(waiting.entry, self._ledger, self._registry, again=waiting.again)
        except Exception as error:  # noqa: BLE001  # whatever it was, the next entry must not wait for this one
            if passes(error):
                self._try_later(waiting, error)
            else:
                self._written(waiting, error)
        else:
            self._written(waiting, None)

    def _written(self, waiting: _Waiting, error: Exception | None) -> None:
        with self._changed:
            self._queue.popleft()
            self._failures, self._silence = 0, None
            # Before anybody hears of it: who ends then must find nothing left on the disk.
            if self._spool and not self._queue:
                self._spool.clear()
            if isinstance(waiting.entry, EventEntry) and isinstance(error, TidegateError):
                self.refusal = error
        if error is None:
            waiting.durable.set_result(None)
        else:
            waiting.durable.set_exception(error)

    def _try_later(self, waiting: _Waiting, error: Exception) -> None:
        with self._changed:
            waiting.again = True
            if isinstance(waiting.entry, FileEntry):
                # Files may lie with somebody else, who may be away alone: events do not wait for that.
                self._queue.rotate(-1)
            self._silence = self._silence or StoreSilence(self._busy_since or 0.0, str(error))
            pauses = self._limits.pauses
            self._not_before = time.monotonic() + pauses[min(self._failures, len(pauses) - 1)]
            self._failures += 1


def _settle(answer: Future[Any], call: Callable[[], object]) -> None:
    try:
        answer.set_result(call())
    except BaseException as error:  # noqa: BLE001  # it is raised where it was asked
        answer.set_exception(error)
