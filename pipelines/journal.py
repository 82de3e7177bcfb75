"""Everything a delivery says, to everyone who listens: the ledger first, then the displays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from gates.model import Verdict
from pipelines.model import Ending, Plan, Result, Step
from pipelines.ports import Event, Ledger
from registry.errors import DeliveryLost
from rollouts.model import RegionState
from tidegate.core.clock import Clock
from tidegate.core.errors import TidegateError

RUNNING_INTERVAL_SECONDS = 10.0
"""How often the ledger repeats a verdict that has not changed; displays see every one."""


class Listener(Protocol):
    """Sees every event the moment after it is durable."""

    def on_event(self, event: Event) -> None:
        """Take note."""
        ...


class Journal:
    """Writes events for one delivery."""

    def __init__(self, ledger: Ledger, clock: Clock, listeners: Sequence[Listener] = ()) -> None:
        """`listeners` are told in their order, after the ledger has the event."""
        self._ledger = ledger
        self._clock = clock
        self._listeners = tuple(listeners)
        self._last: dict[tuple[str, str, str | None], tuple[str, float]] = {}

    def say(self, step: str, kind: str, message: str = "", data: Mapping[str, object] | None = None) -> None:
        """Record one event, durably, before the world is touched or after it was."""
        event = self._event(step, kind, message, data or {})
        self._ledger.append(event)
        self._tell(event)

    @property
    def delivery(self) -> str:
        """The delivery's id."""
        return self._ledger.delivery

    def recorded(self) -> Sequence[Event]:
        """What the ledger holds now, also what other processes wrote there."""
        return self._ledger.recorded()

    def try_to_say(self, step: str, kind: str, message: str, data: Mapping[str, object] | None = None) -> None:
        """As `say`, but a ledger that is not there stops nothing: users come before records."""
        try:
            self.say(step, kind, message, data)
        except TidegateError as error:
            self._tell(self._event(step, kind, f"{message} (not in the ledger: {error})", data or {}))

    def opened(self, plan: Plan, *, spec_file: str | None = None) -> None:
        """The delivery starts; the event carries the whole plan, and where its spec lies among the kept files."""
        steps = [step.model_dump(mode="json", exclude={"gates"}) | {"id": step.id} for step in plan.steps]
        self.say(
            "delivery",
            "started",
            f"{plan.version.uri} to {', '.join(plan.regions)}; champion is version {plan.champion.version}",
            {
                "spec": plan.name,
                "model": plan.version.name,
                "version": plan.version.version,
                "champion": plan.champion.version,
                "regions": list(plan.regions),
                "steps": steps,
                "challenger_version": plan.version.model_dump(mode="json"),
                "champion_version": plan.champion.model_dump(mode="json"),
                "spec_file": spec_file,
                "resolved": plan.resolved.model_dump(mode="json") if plan.resolved else None,
            },
        )

    def failed(self, step: Step, ending: Ending, reason: str, exit_code: int) -> None:
        """The step stops the delivery; the event carries what it makes of it, for a process that ends it later."""
        self.try_to_say(step.id, "failed", reason, {"ending": str(ending), "exit_code": int(exit_code)})

    def traffic(self, step: Step, state: RegionState) -> None:
        """User traffic or mirroring changed and was confirmed."""
        message = f"{state.region}: {state.weight} % on the canary, {state.mirror} % mirrored"
        self.say(step.id, "traffic", message, {"region": state.region, "weight": state.weight, "mirror": state.mirror})

    def progress(self, step: Step, message: str, done: int, total: int) -> None:
        """How far a long step is; for displays only."""
        self._tell(self._event(step.id, "evidence", message, {"done": done, "total": total}))

    def verdict(self, step: Step, verdict: Verdict, transcripts: Mapping[str, tuple[int, str]] | None = None) -> None:
        """A gate answered. Its numbers become time series; the ledger repeats an unchanged answer rarely.

        `transcripts` says of what: as `Trials.written`.
        """
        data = {
            "gate": verdict.gate,
            "outcome": str(verdict.outcome),
            "reason": verdict.reason,
            "numbers": dict(verdict.numbers),
            "region": step.region,
            "transcripts": dict(transcripts or {}),
        }
        event = self._event(step.id, "verdict", verdict.reason, data)
        key, now = (step.id, verdict.gate, step.region), self._clock.monotonic()
        outcome, when = self._last.get(key, ("", float("-inf")))
        # A gate is asked every two seconds, and an event costs the store some milliseconds and a tag for good.
        if outcome != str(verdict.outcome) or now - when >= RUNNING_INTERVAL_SECONDS:
            self._last[key] = (str(verdict.outcome), now)
            self._ledger.append(event)
            place = f"{step.region}." if step.region else ""
            numbers = {f"{place}{verdict.gate}.{name}": value for name, value in verdict.numbers.items()}
            self._ledger.measure(numbers, at=event.at)
        # For those who watch only: it may be dozens of numbers, and the ledger keeps what it is told for good.
        self._tell(event.model_copy(update={"data": {**data, "beside": dict(verdict.beside)}}))

    def closed(self, ending: Ending, reason: str, exit_code: int) -> Result:
        """The delivery is over."""
        data = {"outcome": str(ending), "reason": reason, "exit_code": exit_code}
        self.say("delivery", "closed", f"{ending}: {reason}", data)
        self._ledger.close(str(ending), reason)
        return Result.model_validate(
            {"delivery": self._ledger.delivery, "ending": ending, "reason": reason, "exit_code": exit_code}
        )

    def seal(self, result: Result) -> None:
        """Finish a closing that died between its event and its end; nothing happens when it was finished."""
        with suppress(DeliveryLost):
            self._ledger.close(str(result.ending), result.reason)

    def _event(self, step: str, kind: str, message: str, data: Mapping[str, object]) -> Event:
        return Event(at=self._clock.now(), step=step, kind=kind, message=message, data=data)

    def _tell(self, event: Event) -> None:
        for listener in self._listeners:
            listener.on_event(event)
