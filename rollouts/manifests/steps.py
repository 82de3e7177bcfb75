"""The steps of a trial, and where in them each wish of a delivery stands.

    0  setCanaryScale     engines for the copies
    1  pause {}           deployed: ready, no user; copies come and go here
    2  setWeight 5        Argo Rollouts sends users only when all engines asked for are ready
    3  pause {}           until somebody decides
    4  setWeight 25 ...

A weight that needs more engines than there are has a `setCanaryScale` before it. No step takes engines away: the next
weight would wait minutes for them. `matchTrafficWeight` is not used: at weight 0 it means no engine at all, and Argo
Rollouts then takes the canary's routes away.

No pause ends by itself: a delivery that dies leaves the weight where it is, and the background analysis watches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rollouts.errors import NotPossible
from rollouts.kube.model import Json
from rollouts.manifests.release import Trial
from rollouts.manifests.spec import CanarySpec

DEPLOYED = 1
"""The pause of a canary that is ready and has no user."""


def steps_of(trial: Trial, canary: CanarySpec, replicas: int) -> list[Json]:
    """A pause at the beginning and after every weight; a promotion skips what is left.

    Args:
        trial: what the canary gets.
        canary: how many engines the spec gives it.
        replicas: engines of the stable.
    """
    return [step for part in _parts(trial, canary, replicas) for step in part]


def first_with_users(steps: Sequence[Json]) -> int:
    """Where the background analysis begins: before, nobody's requests are at stake."""
    return next((index for index, step in enumerate(steps) if step.get("setWeight")), len(steps))


def step_of(steps: Sequence[Json], weight: int) -> int:
    """The step that gives a canary `weight` percent of users, ahead of the pause that holds it there; 0 is `DEPLOYED`.

    Raises:
        NotPossible: these steps know no such weight.
    """
    if weight == 0:
        return DEPLOYED
    for index, step in enumerate(steps):
        if step.get("setWeight") == weight:
            return index
    known = ", ".join(str(step["setWeight"]) for step in steps if "setWeight" in step)
    raise NotPossible(f"no step has weight {weight}", hint=f"the Rollout's steps have 0, {known}")


def _parts(trial: Trial, canary: CanarySpec, replicas: int) -> Iterator[list[Json]]:
    """Engines of the canary as a share of the stable's, which an autoscaler may change; or a number at first."""
    if canary.replicas or not trial.mirror:
        number = canary.replicas or canary.least
        share = math.floor(100 * number / replicas)
        first: Json = {"replicas": number}
    else:
        # A canary that gets a copy of everything needs what the stable needs, or it looks worse than it is.
        share = trial.mirror
        first = {"weight": share}
    yield [{"setCanaryScale": first}, {"pause": {}}]
    for weight in trial.weights:
        if weight > share:
            share = weight
            yield [{"setCanaryScale": {"weight": share}}]
        yield [{"setWeight": weight}, {"pause": {}}]
