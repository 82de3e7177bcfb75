"""`tidegate rollout promote|abort|retry|undo|pause|resume|restart|set-image`: one action on one Rollout."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from rollouts.argo.actions import Rollouts
from rollouts.argo.carrying_out import Outcome
from rollouts.argo.picture import Row, row_of
from rollouts.argo.safe import ANYWHERE, Expected
from rollouts.argo.waiting import look_at
from rollouts.errors import NotPossible
from tidegate.cli.output import print_json, say
from tidegate.cli.rollout_durations import seconds
from tidegate.cli.rollout_place import Asked, opened, place_of
from tidegate.cli.rollout_view import health_text
from tidegate.core.clock import SystemClock
from tidegate.core.errors import Refused, UsageError

Act = Callable[[Rollouts, str], Awaitable[Outcome]]
"""Does it to the Rollout of that name."""


def promote(
    asked: Asked,
    *,
    full: bool,
    skip_step: bool,
    to_step: int | None,
    expected: Expected | None,
    as_json: bool,
) -> int:
    """On, past one step, to a step, or past all."""
    if full + skip_step + (to_step is not None) > 1:
        raise UsageError("--full, --skip-step and --to-step: only one of them")
    if to_step is not None:
        return _run(asked, "moved", lambda rollouts, name: rollouts.to_step(name, to_step, expected), as_json=as_json)
    if full:
        return _run(
            asked, "promoted in full", lambda rollouts, name: rollouts.promote_full(name, expected), as_json=as_json
        )
    if skip_step:
        return _run(asked, "moved", lambda rollouts, name: rollouts.skip_step(name, expected), as_json=as_json)
    return _run(asked, "promoted", lambda rollouts, name: rollouts.promote(name, expected), as_json=as_json)


def abort(asked: Asked, *, expected: Expected | None, as_json: bool) -> int:
    """All users back to the stable version."""
    return _run(asked, "aborted", lambda rollouts, name: rollouts.abort(name, expected), as_json=as_json)


def retry(asked: Asked, *, as_json: bool) -> int:
    """The aborted version again."""
    return _run(asked, "retried", lambda rollouts, name: rollouts.retry(name), as_json=as_json)


def undo(asked: Asked, *, revision: int, as_json: bool) -> int:
    """The pod template of an earlier revision."""
    return _run(asked, "undone", lambda rollouts, name: rollouts.undo(name, revision), as_json=as_json)


def pause(asked: Asked, *, as_json: bool) -> int:
    """Hold it."""
    return _run(asked, "paused", lambda rollouts, name: rollouts.pause(name), as_json=as_json)


def resume(asked: Asked, *, as_json: bool) -> int:
    """Let it go."""
    return _run(asked, "resumed", lambda rollouts, name: rollouts.resume(name), as_json=as_json)


def restart(asked: Asked, *, after: str, as_json: bool) -> int:
    """New pods."""
    at = SystemClock().now() + timedelta(seconds=seconds(after, "--in"))
    return _run(asked, "restarting", lambda rollouts, name: rollouts.restart(name, at), as_json=as_json)


def set_image(asked: Asked, *, assignment: str, as_json: bool) -> int:
    """Another image."""
    container, _, image = assignment.partition("=")
    if not container or not image:
        raise UsageError(f"found {assignment!r}; expected CONTAINER=IMAGE", hint="* for every container")
    return _run(asked, "updated", lambda rollouts, name: rollouts.set_image(name, container, image), as_json=as_json)


def expected_of(pod_hash: str | None, step: int | None = None) -> Expected | None:
    """What the caller thinks; None lets the action take what it finds."""
    return (
        None if pod_hash is None and step is None else ANYWHERE.model_copy(update={"pod_hash": pod_hash, "step": step})
    )


def _run(asked: Asked, done: str, act: Act, *, as_json: bool) -> int:
    place = place_of(asked)
    try:
        outcome, row = asyncio.run(_acted(asked, act))
    except NotPossible as refusal:
        # Nothing was changed: that is no fault of the cluster.
        raise Refused(refusal.message, hint=refusal.hint) from refusal
    if as_json:
        sent = [request.model_dump(mode="json", exclude={"body", "resource"}) for request in outcome.sent]
        print_json({"done": done, "sent": sent, "rollout": row.model_dump(mode="json")})
    else:
        said = done if outcome.sent else f"nothing to do, {done} already"
        say(f"{place.name}: {said}; now {health_text(row.health)}")
    return 0


async def _acted(asked: Asked, act: Act) -> tuple[Outcome, Row]:
    clock, place = SystemClock(), place_of(asked)
    async with opened(place, clock) as cluster:
        outcome = await act(Rollouts(cluster, clock), place.name)
        look, _ = await look_at(cluster, clock, outcome.rollout)
    return outcome, row_of(outcome.rollout, look.health)
