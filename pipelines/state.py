"""Where a machine keeps what its deliveries need between two commands."""

from __future__ import annotations

from pathlib import Path

from rollouts.local.locks import LOCK


class StateFolder:
    """The layout of `.tidegate/`. Nothing in it is precious but the registry."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.engines = root / "engines"
        """Downloaded model versions, one folder for each digest."""
        self.builds = root / "builds"
        """Built engines, and what was compiled for them."""
        self.images = root / "images"
        """The OCI layout that `tidegate engine build` writes to."""
        self.run = root / "run"
        """One folder for each engine that runs."""
        self.traffic = root / "traffic"
        """One record for each user request."""
        self.samples = root / "samples"
        """What a delivery asks engines to keep of users' requests, a file each region; no sample is ever here."""
        self.lock = root / LOCK
        """Held by the process that runs a delivery; the fleet host watches it."""
        self.unwritten = root / "unwritten"
        """What MLflow has not taken yet of deliveries, a file each."""

    def delivery(self, delivery: str) -> Path:
        """What one delivery leaves behind: its events and its report."""
        return self.root / "deliveries" / delivery
