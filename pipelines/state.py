"""Where a machine keeps what its deliveries need between two commands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rollouts.local.locks import LOCK


@dataclass(frozen=True)
class StateFolder:
    """The layout of `.tidegate/`. Nothing in it is precious but the registry."""

    root: Path

    @property
    def engines(self) -> Path:
        """Downloaded model versions, one folder for each digest."""
        return self.root / "engines"

    @property
    def builds(self) -> Path:
        """Built engines, and what was compiled for them."""
        return self.root / "builds"

    @property
    def images(self) -> Path:
        """The OCI layout that `tidegate engine build` writes to."""
        return self.root / "images"

    @property
    def run(self) -> Path:
        """One folder for each engine that runs."""
        return self.root / "run"

    @property
    def traffic(self) -> Path:
        """One record for each user request."""
        return self.root / "traffic"

    @property
    def samples(self) -> Path:
        """What a delivery asks engines to keep of users' requests, a file each region; no sample is ever here."""
        return self.root / "samples"

    @property
    def lock(self) -> Path:
        """Held by the process that runs a delivery; the fleet host watches it."""
        return self.root / LOCK

    @property
    def unwritten(self) -> Path:
        """What MLflow has not taken yet of deliveries, a file each."""
        return self.root / "unwritten"

    def delivery(self, delivery: str) -> Path:
        """What one delivery leaves behind: its events and its report."""
        return self.root / "deliveries" / delivery
