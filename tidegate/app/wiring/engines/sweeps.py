"""Builds what a sweep works with on this machine."""

from __future__ import annotations

from pathlib import Path

from pipelines.adapters.load.blocks import LocustLoads
from pipelines.adapters.load.scratch import ScratchProcesses
from pipelines.adapters.load.swept import SweepFile
from pipelines.run.sweep import SweepTools
from pipelines.state import StateFolder
from tidegate.core.clock import SystemClock


def sweep_tools(state: StateFolder, file: Path) -> SweepTools:
    """Engines that serve nobody, Locust, and `file` for blocks; requests and records lie in a folder of its name."""
    return SweepTools(
        scratch=ScratchProcesses(state.scratch, SystemClock()),
        loads=LocustLoads(file.with_suffix("")),
        kept=SweepFile(file),
    )
