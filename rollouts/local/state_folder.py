"""The files of the fleet host below the state folder: where they are, and how they are replaced in one step."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.core.files import replace_file


@dataclass(frozen=True)
class Layout:
    """The paths of one state folder; absolute, because processes elsewhere read them."""

    state: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", self.state.absolute())

    @property
    def fleet(self) -> Path:
        """Everything of the fleet host."""
        return self.state / "fleet"

    @property
    def lock(self) -> Path:
        """Held by the one fleet host."""
        return self.fleet / "host.lock"

    @property
    def record(self) -> Path:
        """Says how to reach the host that is up; gone when there is none."""
        return self.fleet / "host.json"

    @property
    def failure(self) -> Path:
        """Why the last host did not come up."""
        return self.fleet / "host.error.json"

    @property
    def log(self) -> Path:
        """What the host says."""
        return self.fleet / "logs" / "host.log"

    @property
    def logs(self) -> Path:
        """One file for each start of an engine."""
        return self.fleet / "logs"

    @property
    def prometheus(self) -> Path:
        """Configuration and data of Prometheus."""
        return self.fleet / "prometheus"

    def way_back(self, region: str) -> Path:
        """The engine that served before the delivery that is open there; gone while none is."""
        return self.fleet / "way-back" / f"{region}.json"

    def proxy(self, region: str) -> Path:
        """Configuration and log of a region's proxy."""
        return self.fleet / "regions" / region


def replace_json(path: Path, data: Any) -> None:
    """Put `data` at `path` in one step, as JSON."""
    replace_file(path, json.dumps(data, indent=1))
