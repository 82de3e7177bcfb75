"""Whether pods that are waited for still come, and why not."""

from __future__ import annotations

from collections.abc import Sequence

from rollouts.adoption.deployments.handover import PodCounts
from rollouts.adoption.deployments.model import DeploymentPlace
from rollouts.errors import EngineDidNotStart
from rollouts.kube.pods import pod_problems, start_failure
from tidegate.core.clock import Clock
from tidegate.core.model import Json

FAILS_FOR_SECONDS = 60.0
"""How long a pod may fail to start: one whose cause is mended is tried again after a while."""
_HINT = "run it again once that is mended; `tidegate rollout release` gives back what was done"


class PodProgress:
    """Watches the pods of a Deployment and of the Rollout next to it."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        """`seconds` is how long nothing may change."""
        self._clock = clock
        self._seconds = seconds
        self._seen: tuple[PodCounts, PodCounts] | None = None
        self._since = clock.monotonic()

    def require(self, side: DeploymentPlace) -> None:
        """Return while pods may still come.

        Raises:
            EngineDidNotStart: one fails again and again, or nothing changed for too long.
        """
        now, pods = (side.deployed, side.rolled), [*side.pods, *side.place.pods]
        if now != self._seen:
            self._seen, self._since = now, self._clock.monotonic()
        unchanged = self._clock.monotonic() - self._since
        if unchanged > min(FAILS_FOR_SECONDS, self._seconds) and (why := start_failure(pods)):
            raise EngineDidNotStart(why, hint=_HINT, detail=pod_problems(pods))
        if unchanged > self._seconds:
            told = f"{_counted(side)}, and nothing changed for {self._seconds:.0f} s"
            raise EngineDidNotStart(f"{told}{_first(pods)}", hint=_HINT, detail=pod_problems(pods) or None)


def _counted(side: DeploymentPlace) -> str:
    both = (("Rollout", side.rolled), ("Deployment", side.deployed))
    return ", ".join(f"{each.ready} of {each.replicas} pods of the {name} are ready" for name, each in both)


def _first(pods: Sequence[Json]) -> str:
    problems = pod_problems(pods)
    return f": {problems.splitlines()[0]}" if problems else ""
