"""What MLflow knows of a rollback, and is told of it: asked after users are back, within a time limit."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pipelines.events.payloads import Closing
from pipelines.state import StateFolder
from registry.model import DeliverySummary, EngineRecord, Event, EventKind, ModelVersion, Serving, number_of
from tidegate.core.clock import SystemClock
from tidegate.core.errors import OutsideError, TidegateError
from tidegate.core.process import note, user_name
from tidegate.core.text import failure_line
from tidegate.core.threads import call_in_thread

if TYPE_CHECKING:
    from pipelines.ports import EngineProvider, Fleet
    from pipelines.spec.delivery import Delivery
    from registry.deliveries import MlflowDeliveries
    from registry.versions import MlflowRegistry
    from rollouts.model import Engine


LOAD_SECONDS = 60.0
"""Besides `patience.call`, for a question: MLflow's client takes its time to load."""


Said = TypeVar("Said")


class HasNotEnded(OutsideError):
    """Somebody elsewhere carries a delivery still, although they were told to end it."""


@dataclass(frozen=True)
class RollbackLedger:
    """MLflow, as far as a rollback needs it: each question by `ask`, which raises `TidegateError` where MLflow did not
    do its part. Nothing of MLflow is loaded before users are back.
    """

    spec: Delivery
    state: Path
    tracking_uri: str | None

    async def ask(self, call: Callable[[RollbackLedger], Said], *, more_seconds: float = 0.0) -> Said:
        """What one of the methods below returns, in a thread and within the time limit."""
        if self.tracking_uri is None and not (self.state / "mlflow.db").exists():
            message = "no MLflow is named here, and there is none in the state folder"
            raise OutsideError(message, hint="set MLFLOW_TRACKING_URI")

        def asked() -> Said:
            try:
                return call(self)
            except TidegateError:
                raise
            # What a proxy, a version of MLflow, or anybody with a login, makes of it; users do not wait for that.
            except Exception as error:
                raise OutsideError(f"what MLflow has cannot be read: {failure_line(error)}") from error

        seconds = self.spec.patience.call.total_seconds() + LOAD_SECONDS + more_seconds
        try:
            # The thread of a call that hangs is left behind.
            return await asyncio.wait_for(call_in_thread(asked), seconds)
        except TimeoutError:
            message = f"MLflow did not answer in {seconds:g} s"
            raise OutsideError(message, hint="check that it runs and can be reached, and retry") from None

    def last(self) -> tuple[DeliverySummary | None, bool]:
        """The model's last delivery, and whether somebody carries it."""
        ledgers = self._ledgers()
        last = next(iter(ledgers.deliveries(self.spec.model.name, last=1)), None)
        return last, last is not None and ledgers.is_alive(last)

    def stop(self, delivery: str) -> None:
        """Ask the one who carries it to end it: they hear it with their next sign of life."""
        ledger = self._ledgers().join(delivery, carries=False)
        message = f"asked to stop by {_me()}"
        ledger.append(Event(at=SystemClock().now(), step="delivery", kind=EventKind.STOP, message=message))

    def close(self, last: DeliverySummary, serves: str | None) -> None:
        """End a delivery that nobody carries; aliases that it may have moved follow what all regions serve, if one."""
        ledger = self._ledgers().take_over(last.id)
        reason = f"rolled back by {_me()}; nobody carried it any more"
        closing = Closing(outcome="interrupted", reason=reason, exit_code=130)
        at = SystemClock().now()
        champion = self.registry().look_up(self.spec.model.name, self.spec.model.target).version
        engines_alone = bool(last.in_production) and last.champion == last.version
        if serves is not None and (champion != number_of(serves) or engines_alone):
            self.reinstate(serves)
        ledger.append(closing.event(at, "delivery", f"interrupted: {reason}"))
        ledger.close("interrupted", reason)

    def reinstate(self, engine: str) -> None:
        """Make it champion: users are on it."""
        registry = self.registry()
        version, kept = registry.look_up(self.spec.model.name, number_of(engine)), self._kept(engine)
        if engine in kept:
            other = next((each for name, each in kept.items() if name != engine), None)
            before = {"before": other} if other else {}
            registry.mark(version, Serving(now=kept[engine], **before).tag)
        registry.reinstate(version, self.spec.model.serving)

    def previous(self) -> str:
        """The version before the champion, as the registry knows it."""
        return self.registry().look_up(self.spec.model.name, self.spec.model.previous).version

    async def engine_before(self, fleet: Fleet, version: str, engines: EngineProvider | None = None) -> Engine:
        """What served that version. In a cluster nothing is downloaded: pods pull the image that they had then. This
        machine needs the files.

        Raises:
            UntrustedImage: the region has never run it, and the trust file does not allow what MLflow names.
            TidegateError: neither the region's history nor MLflow knows it.
        """
        from pipelines.adapters.trust import named_trust, trusted_images
        from rollouts.cluster.region import CarriedRegion

        if not isinstance(fleet, CarriedRegion):
            from pipelines.adapters.engines import local_engines

            found, record = await self.ask(lambda it: it._recorded(version))
            state = StateFolder(self.state)
            provider = engines or local_engines(self.spec, state, await call_in_thread(self.registry))
            return await provider.prepare(found, note, record)
        if known := await fleet.engine_of(version):
            return known
        found, engine = await self.ask(lambda it: it._by_image(version))
        if images := trusted_images(named_trust()):
            await call_in_thread(images.prove, found, engine.image)
        return engine

    def _recorded(self, engine: str) -> tuple[ModelVersion, EngineRecord | None]:
        """The version as the registry has it, and what it keeps of the engine with that name."""
        found = self.registry().resolve(self.spec.model.name, number_of(engine))
        return found, self._kept(engine).get(engine)

    def _by_image(self, version: str) -> tuple[ModelVersion, Engine]:
        """The version, and the engine image that its tags name; no file is brought here."""
        from pipelines.authority.engine_images import pinned_image
        from rollouts.model import Engine

        registry = self.registry()
        found = registry.look_up(self.spec.model.name, number_of(version))
        image = pinned_image(found, registry.tags(found))
        return found, Engine(version=version, digest=found.digest, model=self.spec.metadata.name, image=image)

    def _kept(self, engine: str) -> dict[str, EngineRecord]:
        registry = self.registry()
        kept = Serving.of(registry.tags(registry.look_up(self.spec.model.name, number_of(engine))))
        return {each.name: each for each in (kept.before, kept.now) if each}

    def registry(self) -> MlflowRegistry:
        """Where versions and their files are."""
        from pipelines.adapters.stores import open_registry

        return open_registry(self.state, self.tracking_uri)

    def _ledgers(self) -> MlflowDeliveries:
        from pipelines.adapters.stores import open_deliveries

        return open_deliveries(self.state, self.tracking_uri)


def _me() -> str:
    return f"`tidegate rollback` of {user_name()} on {socket.gethostname()}"
