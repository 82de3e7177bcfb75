"""What is known of a model's last delivery and of its regions, at one moment."""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.events.state import DeliveryState
from registry.model import DeliverySummary
from rollouts.model import CarrierHeartbeat, RegionState
from tidegate.core.errors import ExitCode
from tidegate.core.model import Value


class StatusReport(Value):
    """The records of the last delivery as MLflow has them, and what every region serves."""

    last: DeliverySummary | None = None
    alive: bool = False
    """Whether it has not ended, and its process shows signs of life."""
    story: DeliveryState = DeliveryState()
    unwritten: int = 0
    """Events that wait on this machine's disk for MLflow to answer."""
    unreadable: str | None = None
    """Why MLflow said nothing; None when it answered."""
    regions: tuple[RegionState, ...] = ()
    silent: Mapping[str, str] = {}
    """Why other regions cannot be seen."""
    carried: Mapping[str, CarrierHeartbeat] = {}
    """Who carries the trials, where somebody does."""
    process: int | None = None
    """Of the delivery that runs here."""
    mlflow: str = ""
    """Where the records and the versions are, without a password."""
    in_production: str | None = None
    """What serves by the registry's alias, under the name that regions have for it; None when that is not known."""

    @property
    def exit_code(self) -> ExitCode:
        """4 when a region cannot be seen, or serves nobody, or the records cannot be read."""
        serving = [region.stable is not None and region.stable.ready for region in self.regions]
        # None at all is no fleet.
        well = serving and all(serving) and not self.silent and self.unreadable is None
        return ExitCode.DELIVERED if well else ExitCode.OUTSIDE
