"""What engines of a region are to keep, and what each of their pods has kept, through the API server alone.

What they are to keep stands in a ConfigMap that pods have mounted: a kubelet brings it into them within two minutes,
and no pod starts again for it. What was kept is asked of each pod through the API server's proxy to it, so
that nobody needs a way of their own into a cluster's network. What is in either, and sealed, is nothing of this room's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import suppress

from rollouts.errors import FleetError, NotFound
from rollouts.kube.client import KubeClient
from rollouts.kube.objects import is_ready, name_of
from rollouts.kube.resources import CONFIG_MAPS, PODS, Request
from rollouts.kube.retry import RetryPolicy
from rollouts.manifests.conventions import PORT, samples_request
from rollouts.manifests.objects.rollout import can_keep_samples, samples_object
from tidegate.core.clock import Clock
from tidegate.core.errors import Refused
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY, VERSION

UNHEARD_SECONDS = 180.0
"""A pod that keeps nothing for so long has not heard that it should."""
SILENT_SECONDS = 30.0
"""A pod that cannot be asked for so long is told of; one that goes meanwhile is not."""

Headers = Mapping[str, str]
"""What proves to an engine who asks."""

log = logging.getLogger(__name__)


class RegionSamples:
    """The samples of one delivery's pods in one region."""

    def __init__(
        self, region: str, cluster: KubeClient, delivery: str, clock: Clock, *, patience_seconds: float
    ) -> None:
        """`cluster` does not retry: a pod is asked again soon enough. A first word is repeated for the patience."""
        self._region, self._cluster, self._delivery, self._clock = region, cluster, delivery, clock
        self._retries = RetryPolicy(clock, seconds=patience_seconds)
        self._since: dict[str, float] = {}
        """By pod that gives nothing: since when, in seconds of the clock."""

    async def require(self, version: str) -> None:
        """Be sure that the pods of a version were made so that they hear what to keep.

        Raises:
            Refused: one was not.
            FleetError: the region does not answer.
        """
        pods = await self._retries.run(lambda: self._pods(version))
        if lacking := [name_of(pod) for pod in pods if not can_keep_samples(pod, self._delivery)]:
            raise Refused(
                f"{self._region}: pod {lacking[0]} of version {version} cannot keep samples: it was made for a spec "
                "without the section `samples`",
                hint="deliver a version with the section and without gates on users' answers; the next can be judged",
            )

    async def ask(self, text: str, *, first: bool) -> None:
        """Have engines read `text`; a `first` word is repeated while the region is silent.

        Raises:
            FleetError: it could not be written.
        """
        told = samples_object(self._delivery, text)
        if not first:
            await self._cluster.apply(told)
            return
        self._since.clear()
        await self._retries.run(lambda: self._cluster.apply(told))

    async def take(self, version: str, path: str, headers: Headers) -> tuple[list[Json], str, bool]:
        """What the ready pods of a version give away; which give nothing for too long, and why; whether all give some.

        Raises:
            FleetError: nobody says which pods there are.
        """
        pods = [name_of(pod) for pod in await self._pods(version) if is_ready(pod)]
        found = await asyncio.gather(*(self._take(pod, path, headers) for pod in pods))
        problems = [each for each in found if isinstance(each, str)]
        answers = [each for each in found if not isinstance(each, str) and each is not None]
        return answers, f"{self._region}: {'; '.join(problems)}" if problems else "", len(answers) == len(pods)

    async def end(self, versions: Iterable[str], path: str, headers: Headers) -> None:
        """Nothing asks for samples any more, and the pods of these versions forget theirs. Never raises: engines end
        by themselves, soon after nobody asks any more.
        """
        # First: no pod is to read it again once it was told to forget.
        await _best_effort([self._cluster.delete(CONFIG_MAPS, samples_request(self._delivery))])
        for version in versions:
            with suppress(FleetError):
                pods: Sequence[Json] = await self._pods(version)
                await _best_effort(self._post(name_of(pod), path, headers) for pod in pods)

    async def _pods(self, version: str) -> tuple[Json, ...]:
        labels = f"{DELIVERY}={self._delivery},{VERSION}={version}"
        return await self._cluster.list(PODS, labels=labels)

    async def _take(self, pod: str, path: str, headers: Headers) -> Json | str | None:
        """What a pod gives away; None for nothing yet, or what is wrong with it for too long already."""
        why, limit = f"pod {pod} does not answer", SILENT_SECONDS
        try:
            reply = await self._post(pod, path, headers)
        except NotFound as error:
            if error.reason:
                # The API server's own word: the pod is gone, and with it what it had.
                self._since.pop(pod, None)
                return None
            why, limit = f"pod {pod} keeps no samples: it has not heard that it should", UNHEARD_SECONDS
        except FleetError as error:
            why = f"{why}: {error.message}"
        else:
            self._since.pop(pod, None)
            return reply
        now = self._clock.monotonic()
        return why if now - self._since.setdefault(pod, now) >= limit else None

    async def _post(self, pod: str, path: str, headers: Headers) -> Json:
        """Through the API server, which keeps `Authorization` to itself."""
        proxy = f"proxy/{path.lstrip('/')}"
        return await self._cluster.send(Request("POST", PODS, f"{pod}:{PORT}", subresource=proxy, headers=headers))


async def _best_effort(asking: Iterable[Awaitable[object]]) -> None:
    for error in await asyncio.gather(*asking, return_exceptions=True):
        if isinstance(error, FleetError):
            log.info("engines were not told of the end of samples: %s", error)
        elif isinstance(error, BaseException):
            raise error
