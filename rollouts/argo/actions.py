"""Every action on a Rollout of one cluster: read, decide, send, and read back until the controller has done it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial

from rollouts.argo import safe, settled
from rollouts.argo.carrying_out import Errand, Outcome, carry_out
from rollouts.argo.model import Rollout
from rollouts.argo.patches import Requests, next_step
from rollouts.argo.safe import ANYWHERE, Expected
from rollouts.argo.sources import replica_sets_of, workload_of
from rollouts.kube.model import Json
from rollouts.kube.ports import Cluster
from rollouts.kube.resources import ROLLOUTS
from tidegate.core.clock import Clock

REACT_SECONDS = 30.0
"""A controller that is well answers within a second or two; the queue of a large cluster takes longer."""

Decide = Callable[[Json, Expected], Requests]
"""One of `rollouts.argo.safe`."""

Done = Callable[[Json, Json], bool]
"""One of `rollouts.argo.settled`."""


def _always(_: Json) -> None:
    """Nobody else's."""


class Rollouts:
    """The Rollouts of one cluster's namespace.

    Each action raises `NotPossible` when it is refused, `NotConfirmed` when its effect does not show in time, and what
    the port `Cluster` raises. `expected` is where the rollout is thought to be; by default, where it is found.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        *,
        react_seconds: float = REACT_SECONDS,
        allows: Callable[[Json], None] = _always,
    ) -> None:
        """`allows` looks at each Rollout before it is written, and raises what shall keep it from being."""
        self._allows = allows
        self._cluster = cluster
        self._clock = clock
        self._react_seconds = react_seconds

    async def get(self, name: str) -> Json:
        return await self._cluster.get(ROLLOUTS, name)

    async def promote(self, name: str, expected: Expected | None = None) -> Outcome:
        """Out of the pause that it is in, to whatever comes next."""
        return await self._act(name, safe.promote, settled.out_of_pause, expected)

    async def promote_full(self, name: str, expected: Expected | None = None) -> Outcome:
        """Past all steps; returns once none holds it, which is before every pod is up."""
        return await self._act(name, safe.promote_full, settled.past_all, expected or await self._version(name))

    async def skip_step(self, name: str, expected: Expected | None = None) -> Outcome:
        """Past the running step, a pause or an analysis."""
        rollout = await self.get(name)
        return await self.to_step(name, next_step(Rollout(rollout)), expected or Expected.of(rollout))

    async def to_step(self, name: str, index: int, expected: Expected | None = None) -> Outcome:
        """To the step with this index, up or down."""

        def decide(rollout: Json, expected: Expected) -> Requests:
            return safe.to_step(rollout, index, expected)

        return await self._act(name, decide, partial(settled.at_step, index=index), expected)

    async def abort(self, name: str, expected: Expected | None = None) -> Outcome:
        """All users back to the stable version, at whatever step the other one is by now."""
        return await self._act(name, safe.abort, settled.aborted, expected or await self._version(name))

    async def retry(self, name: str, expected: Expected | None = None) -> Outcome:
        """The aborted version again, from its first step."""
        return await self._act(name, safe.retry, settled.retried, expected or await self._version(name))

    async def pause(self, name: str, expected: Expected = ANYWHERE) -> Outcome:
        """Hold everything where it is."""
        return await self._act(name, safe.pause, settled.held, expected)

    async def resume(self, name: str, expected: Expected = ANYWHERE) -> Outcome:
        """Let go what `pause` holds, and nothing else."""
        return await self._act(name, safe.resume, settled.resumed, expected)

    async def restart(self, name: str, at: datetime, expected: Expected = ANYWHERE) -> Outcome:
        """New pods for those that are older than `at`."""

        def decide(rollout: Json, expected: Expected) -> Requests:
            return safe.restart(rollout, at, expected)

        return await self._act(name, decide, partial(settled.restarting, at=at), expected)

    async def undo(self, name: str, revision: int = 0, expected: Expected | None = None) -> Outcome:
        """The pod template of an earlier revision; 0 is the stable one while another is on its way."""
        # Which revision is meant is decided once: going back to one gives it a new number.
        rollout = await self.get(name)
        replica_sets = await replica_sets_of(self._cluster, rollout, await workload_of(self._cluster, rollout))
        template = safe.template_of(rollout, replica_sets, revision)

        async def decide(rollout: Json, expected: Expected) -> Requests:
            return safe.restore(rollout, template, expected, workload=await workload_of(self._cluster, rollout))

        done = partial(settled.has_template, template=template)
        return await self._carry_out(name, decide, done, expected or _version(rollout))

    async def set_image(self, name: str, container: str, image: str, expected: Expected | None = None) -> Outcome:
        """Another image for every container of that name, or for all with `*`."""

        async def decide(rollout: Json, expected: Expected) -> Requests:
            workload = await workload_of(self._cluster, rollout)
            return safe.set_image(rollout, container, image, expected, workload=workload)

        done = partial(settled.has_image, container=container, image=image)
        return await self._carry_out(name, decide, done, expected or await self._version(name))

    async def _version(self, name: str) -> Expected:
        return _version(await self.get(name))

    async def _act(self, name: str, decide: Decide, done: Done, expected: Expected | None) -> Outcome:
        async def decided(rollout: Json, expected: Expected) -> Requests:
            return decide(rollout, expected)

        return await self._carry_out(name, decided, done, expected)

    async def _carry_out(
        self, name: str, decide: Callable[[Json, Expected], Awaitable[Requests]], done: Done, expected: Expected | None
    ) -> Outcome:
        before = await self.get(name)
        meant = expected or Expected.of(before)

        async def wanted(rollout: Json) -> Requests:
            self._allows(rollout)
            return await decide(rollout, meant)

        errand = Errand(before, wanted, done, self._react_seconds)
        return await carry_out(errand, self._cluster, self._clock)


def _version(rollout: Json) -> Expected:
    return Expected(pod_hash=Rollout(rollout).pod_hash)
