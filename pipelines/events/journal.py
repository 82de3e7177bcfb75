"""Records a delivery's events, for everyone who listens: the ledger, by a writer of its own, and the displays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gates.model import GateOutcome, Verdict
from pipelines.events.payloads import (
    Closing,
    Opening,
    Payload,
    StepFailure,
    StepProgress,
    TrafficShift,
    VerdictPayload,
)
from pipelines.events.writer import (
    AliasEntry,
    ClosingEntry,
    Entry,
    EventEntry,
    FileEntry,
    MetricsEntry,
    Spool,
    StoreSilence,
    TagsEntry,
    Writer,
    WriterLimits,
    passes,
)
from pipelines.model import Ending, Left, Plan, PlanStep, Result
from pipelines.ports import Ledger, Listener
from registry.errors import DeliveryLost, StoreUnreachable
from registry.model import SERVING, Event, EventKind, ModelVersion, ServingAliases
from rollouts.model import RegionState
from tidegate.core.clock import Clock
from tidegate.core.errors import TidegateError
from tidegate.core.units import format_duration

if TYPE_CHECKING:
    from registry.versions import MlflowRegistry

RUNNING_INTERVAL_SECONDS = 10.0
"""How often the ledger repeats a verdict that has not changed, until its step ends; displays see every one."""
LOOK_SECONDS = 1.0
"""Between two looks whether a store that was silent has answered."""

Answer = TypeVar("Answer")
Look = Callable[[], Awaitable[None]]


class Journal:
    """Writes events for one delivery. On the way forward they are waited for; on the way back nothing is."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        listeners: Sequence[Listener] = (),
        *,
        registry: MlflowRegistry | None = None,
        spool: Spool | None = None,
        limits: WriterLimits | None = None,
    ) -> None:
        """`listeners` are told in their order; with `spool` what is not written survives this process."""
        self._ledger = ledger
        self._clock = clock
        self._listeners = tuple(listeners)
        self._limits = limits or WriterLimits()
        self._spool = spool
        self._writer = Writer(ledger, registry, clock, spool=spool, limits=self._limits)
        self._last: dict[tuple[str, str, str | None], tuple[str, float]] = {}
        self._unwritten: dict[tuple[str, str, str | None], tuple[Entry, Entry]] = {}
        self._told_silent: StoreSilence | None = None
        self._closing = False
        self.begun: set[str] = set()
        """The steps that have begun, by what this process has said and read."""
        self.asked: set[str] = set()
        """What this process has asked people to approve."""
        self.moves: dict[str, Event] = {}
        """By region: the last event that tells how its users are shared out."""

    @property
    def delivery(self) -> str:
        """The delivery's id."""
        return self._ledger.delivery

    async def say(
        self, step: str, what: Payload | EventKind, message: str = "", *, meanwhile: Look | None = None
    ) -> None:
        """Record one event, durably, before the world is touched. `meanwhile` is called while the store is silent.

        Raises:
            StoreUnreachable: the store was silent for longer than the delivery is patient.
            DeliveryLost: another process has closed this delivery.
        """
        await self.record(self._event(what, step, message), meanwhile=meanwhile)

    async def record(self, event: Event, *, meanwhile: Look | None = None) -> None:
        """As `say`, of an event that was made before."""
        self._write_last_verdicts(event)
        await self._durable(self._writer.put(EventEntry(event=event)), self._limits.patience, meanwhile)
        if event.kind == EventKind.STARTED:
            self.begun.add(event.step)
        self._remember(event)
        self._show(event)

    def tell(self, step: str, what: Payload | EventKind, message: str = "") -> None:
        """Record one event, and wait for nobody. What the ledger refuses is told to the displays."""
        event = self._event(what, step, message)
        self._write_last_verdicts(event)
        self._remember(event)
        self._show(event)
        unwritten = event.model_copy(update={"message": f"{message}; not in the ledger"})
        self._put(EventEntry(event=event), unwritten)

    def note(self, step: str, message: str) -> None:
        """Record a line of what a step does, and wait for nobody."""
        self.tell(step, StepProgress(), message)

    async def recorded(self) -> Sequence[Event]:
        """What the ledger holds now, also what other processes wrote there.

        Raises:
            StoreUnreachable: it does not answer.
        """
        events = await self._asked(self._ledger.recorded)
        self.begun |= {event.step for event in events if event.kind == EventKind.STARTED}
        for event in events:
            self._remember(event)
        return events

    def check(self) -> None:
        """Whether the delivery may go on as far as its ledger is concerned; to be asked again and again.

        Raises:
            StoreUnreachable: the store has been silent for too long.
            TidegateError: it refused an event, as it does once another process has closed the delivery.
        """
        if self._writer.refusal is not None:
            raise self._writer.refusal
        silence = self._heeded()
        if silence and self._clock.monotonic() - silence.since >= self._limits.patience:
            raise _too_long(silence, self._limits.patience)

    @property
    def is_behind(self) -> bool:
        """Whether the store does not answer, so that what was said is not durable."""
        return self._writer.silence is not None

    def hold(self) -> None:
        """Let nothing go to the ledger for a moment: what is on its way to the regions goes first."""
        self._writer.hold()

    def release(self) -> None:
        """The regions have been asked: records may follow."""
        self._writer.release()

    async def opened(self, plan: Plan, *, spec_file: str | None = None) -> None:
        """The delivery starts; the event carries the whole plan, and where its spec lies among the kept files."""
        message = f"{plan.version.uri} to {', '.join(plan.regions)}; champion is version {plan.in_production}"
        if plan.is_engine_change:
            message = f"engine {plan.on_trial} of {message}"
        await self.say("delivery", Opening.of_plan(plan, spec_file), message)

    def failed(self, step: PlanStep, ending: Ending, reason: str, exit_code: int) -> None:
        """The step stops the delivery; the event carries what it makes of it, for a process that ends it later."""
        self.hold()
        self.tell(step.id, StepFailure(ending=ending, exit_code=int(exit_code)), reason)

    def traffic(self, step: PlanStep, state: RegionState) -> None:
        """User traffic or mirroring changed and was confirmed."""
        message = f"{state.region}: {state.weight} % on the canary, {state.mirror} % mirrored"
        message += f"; {state.note}" if state.note else ""
        self.tell(step.id, TrafficShift(region=state.region, weight=state.weight, mirror=state.mirror), message)

    def progress(self, step: PlanStep, message: str, done: int, total: int) -> None:
        """How far a long step is; for displays only."""
        self._show(self._event(StepProgress(done=done, total=total), step.id, message))

    def verdict(
        self,
        step: PlanStep,
        verdict: Verdict,
        transcripts: Mapping[str, tuple[int, str]] | None = None,
        *,
        region: str | None = None,
    ) -> None:
        """A gate answered. Its numbers become time series; the ledger repeats an unchanged answer rarely, and last.

        `transcripts` says of what: as `Trials.written`. `region` is where, of a step that looks at several.
        """
        region = region or step.region
        if verdict.outcome is GateOutcome.FAIL:
            self.hold()
        payload = VerdictPayload(
            gate=verdict.gate,
            outcome=verdict.outcome,
            reason=verdict.reason,
            numbers=verdict.numbers,
            region=region,
            transcripts=transcripts or {},
        )
        event = self._event(payload, step.id, verdict.reason)
        key, now = (step.id, verdict.gate, region), self._clock.monotonic()
        outcome, when = self._last.get(key, ("", float("-inf")))
        # MLflow's UI groups metrics by what stands before the slash.
        place = f"{region}/" if region else ""
        numbers = {f"{place}{verdict.gate}.{name}": value for name, value in verdict.numbers.items()}
        self._unwritten[key] = EventEntry(event=event), MetricsEntry(numbers=numbers, at=event.at)
        # A gate is asked every two seconds, and an event costs the store some milliseconds and a tag for good.
        if outcome != str(verdict.outcome) or now - when >= RUNNING_INTERVAL_SECONDS:
            self._last[key] = (str(verdict.outcome), now)
            self._write(key)
        # For those who watch only: it may be dozens of numbers, and the ledger keeps what it is told for good.
        shown = payload.model_copy(update={"auxiliary": verdict.auxiliary})
        self._show(shown.event(event.at, step.id, verdict.reason))

    def _write(self, key: tuple[str, str, str | None]) -> None:
        for entry in self._unwritten.pop(key):
            self._put(entry, None)

    def _write_last_verdicts(self, event: Event) -> None:
        """Before a step's end: what its gates said last stands in the ledger, as it does in a report."""
        if event.kind in (EventKind.DONE, EventKind.FAILED):
            for key in [key for key in self._unwritten if key[0] == event.step]:
                self._write(key)

    def attach(self, path: Path, *, folder: str = "") -> None:
        """Keep a file besides the events, when its turn comes."""
        self._put(FileEntry(path=path.absolute(), folder=folder), None)

    def mark(self, version: ModelVersion, tags: Mapping[str, str]) -> None:
        """Write tags on the version, when their turn comes."""
        event = self._noted("the version could not be marked")
        self._put(TagsEntry(version=version, tags=tags), event)

    def reinstate(self, version: ModelVersion, names: ServingAliases = SERVING) -> None:
        """Make the version champion again, when its turn comes."""
        self._put(AliasEntry(version=version, names=names), self._noted("the aliases may be wrong"))

    async def insist(self, call: Callable[[], None]) -> None:
        """Let the ledger's thread call the store, again while it is silent; the call states what shall hold.

        Raises:
            StoreUnreachable: the store was silent for longer than the delivery is patient.
            TidegateError: it says no.
        """
        begun = self._clock.monotonic()
        while True:
            try:
                return await self._asked(call, within=self._limits.patience)
            except TidegateError as error:
                if not passes(error) or self._clock.monotonic() - begun >= self._limits.patience:
                    raise
            await self._clock.sleep(LOOK_SECONDS)

    async def closed(self, ending: Ending, reason: str, exit_code: int, left: tuple[Left, ...] = ()) -> Result:
        """The delivery is over, but for the regions that are `left`, whether or not that can be written: `settle`."""
        self._closing = True
        closing = Closing(outcome=str(ending), reason=reason, exit_code=exit_code)
        event = self._event(closing, "delivery", f"{ending}: {reason}")
        durable = self._writer.put(EventEntry(event=event))
        with suppress(TidegateError):
            await self._durable(durable, 0.0)
        self._show(event)
        unclosed = self._noted("the ledger could not be closed")
        self._put(ClosingEntry(outcome=str(ending), reason=reason), unclosed)
        await self.settle()
        return Result.model_validate(
            {"delivery": self.delivery, "ending": ending, "reason": reason, "exit_code": exit_code, "left": left}
        )

    async def seal(self, result: Result) -> None:
        """Finish a closing that died between its event and its end; nothing happens when it was finished."""
        with suppress(DeliveryLost):
            await self._asked(lambda: self._ledger.close(str(result.ending), result.reason))

    async def beat(self) -> None:
        """Say that this process lives; nothing happens once it has closed the delivery itself.

        Raises:
            StoreUnreachable, DeliveryLost: nobody heard it.
        """
        try:
            await self._asked(self._ledger.beat)
        except DeliveryLost:
            if not self._closing:
                raise

    async def written(self) -> None:
        """Return when everything that was said is durable.

        Raises:
            StoreUnreachable: the store was silent for longer than the delivery is patient.
        """
        await self._durable(self._writer.drained(), self._limits.patience)

    async def settle(self) -> None:
        """Give the store some time to take what is left, which stays on disk otherwise. Changes nothing else."""
        if not self._writer.left:
            return
        try:
            await self._durable(self._writer.drained(), self._limits.end)
        except StoreUnreachable:
            kept = f"kept in {self._spool.path}; the next tidegate command writes them" if self._spool else "lost"
            message = f"MLflow has not taken {self._writer.left} records of this delivery; they are {kept}"
            self._show(self._noted(message))

    def end(self) -> None:
        """Let go of the disk; to be called last."""
        self._writer.end()

    def _put(self, entry: Entry, unwritten: Event | None) -> None:
        """Queue it; `unwritten` is what displays are shown when the store says no."""
        durable = self._writer.put(entry)
        if unwritten is None:
            return
        loop = asyncio.get_running_loop()

        def look(future: Future[None]) -> None:
            error = future.exception()
            if error is not None:
                event = unwritten.model_copy(update={"message": f"{unwritten.message}: {error}"})
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._show, event)

        durable.add_done_callback(look)

    async def _asked(self, call: Callable[[], Answer], *, within: float | None = None) -> Answer:
        """What the store answers in time: by default in the time that one call may take."""
        seconds = self._limits.call if within is None else within
        answer = asyncio.wrap_future(self._writer.ask(call))
        answer.add_done_callback(_heard)
        done, _ = await asyncio.wait([answer], timeout=seconds)
        if not done:
            self._writer.overdue()
            raise StoreUnreachable(f"MLflow has not answered within {seconds:g} s", hint="bring MLflow back, and retry")
        return answer.result()

    async def _durable(self, future: Future[None], patience: float, meanwhile: Look | None = None) -> None:
        """Return once it is; the clock of `patience`, in seconds, starts with the store's silence."""
        done = asyncio.wrap_future(future)
        done.add_done_callback(_heard)
        while not done.done():
            silence = self._heeded()
            if silence is None:
                await asyncio.wait([done], timeout=self._limits.call)
                if not done.done():
                    self._writer.overdue()
                continue
            if self._clock.monotonic() - silence.since >= patience:
                raise _too_long(silence, patience)
            if meanwhile:
                await meanwhile()
            pause = asyncio.ensure_future(self._clock.sleep(LOOK_SECONDS))
            await asyncio.wait([done, pause], return_when=asyncio.FIRST_COMPLETED)
            pause.cancel()
        done.result()

    def _heeded(self) -> StoreSilence | None:
        """The store's silence, told to the displays when it begins and when it ends."""
        silence = self._writer.silence
        if silence and not self._told_silent:
            patience = format_duration(timedelta(seconds=self._limits.patience))
            message = f"MLflow is silent ({silence.reason}); going on without it for {patience}"
            self._show(self._noted(message))
        elif self._told_silent and not silence:
            self._show(self._noted("MLflow answers again"))
        self._told_silent = silence
        return silence

    def _noted(self, message: str) -> Event:
        return self._event(StepProgress(), "delivery", message)

    def _event(self, what: Payload | EventKind, step: str, message: str) -> Event:
        now = self._clock.now()
        if isinstance(what, Payload):
            return what.event(now, step, message)
        return Event(at=now, step=step, kind=what, message=message)

    def _remember(self, event: Event) -> None:
        """Where users are, in whatever order it is heard of."""
        if event.kind == EventKind.TRAFFIC and (region := str(event.data.get("region") or "")):
            known = self.moves.get(region)
            if known is None or known.at <= event.at:
                self.moves[region] = event

    def _show(self, event: Event) -> None:
        for listener in self._listeners:
            listener.on_event(event)


def _too_long(silence: StoreSilence, patience: float) -> StoreUnreachable:
    silent = format_duration(timedelta(seconds=patience))
    return StoreUnreachable(
        f"MLflow has been silent for {silent}: {silence.reason}", hint="bring MLflow back, then `tidegate resume`"
    )


def _heard(future: asyncio.Future[Answer]) -> None:
    """Anyone who waited may be gone: then nobody else asks what became of it."""
    if not future.cancelled():
        future.exception()
