"""What happens in a story."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

import psutil
from e2e.spec import write_spec
from e2e.story import Story
from fakes.waiting import until

from rollouts.local.locks import Layout
from rollouts.model import RegionState

UNTIL_SOMETHING_HAPPENS = "15m"
"""For how long a canary lasts when the scenario itself ends it."""


class Victim(StrEnum):
    """What a scenario kills."""

    DELIVERY = "tidegate deliver"
    HOST = "the fleet host"


class When:
    """What happens."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._machine = story.machine

    def delivered(self) -> None:
        """A delivery from its begin to its end."""
        self.a_delivery_runs(canary_lasts="0s")
        self._story.ended()

    def a_delivery_runs(self, *, canary_lasts: str = UNTIL_SOMETHING_HAPPENS, **changes: Any) -> None:
        """`changes` replace whole keys at the top of its spec."""
        if self._story.delivery is not None:
            self._story.ended()
        write_spec(self._machine.folder, canary_lasts=canary_lasts, **changes)
        self._story.delivery = self._machine.start("deliver")

    def weight_reaches(self, percent: int) -> None:
        """So many of the region's users are on the canary."""

        def reached() -> bool:
            return self._running().weight == percent

        until(f"the weight is {percent} %", reached)
        until("a user has met the canary", lambda: any(request.role == "canary" for request in self._story.requests()))

    def _running(self) -> RegionState:
        """The region, as long as the delivery goes on."""
        delivery = self._story.delivery
        assert delivery is not None, "nothing is delivered in this story"
        assert delivery.runs, f"the delivery ended before: {delivery.finish()}"
        return self._story.region()

    def kill(self, victim: Victim) -> None:
        """SIGKILL; returns when it is dead, because until then the kernel still takes connections for it."""
        process = self._find(victim)
        process.kill()
        until(f"{victim} is dead", lambda: not _alive(process))

    def _find(self, victim: Victim) -> psutil.Process:
        match victim:
            case Victim.DELIVERY:
                assert self._story.delivery is not None, "nothing is delivered in this story"
                return psutil.Process(self._story.delivery.pid)
            case Victim.HOST:
                return psutil.Process(json.loads(Layout(self._machine.state).record.read_text())["pid"])


def _alive(process: psutil.Process) -> bool:
    try:
        # A zombie's sockets are open until the last of its threads has ended.
        return process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1
    except psutil.NoSuchProcess:
        return False
